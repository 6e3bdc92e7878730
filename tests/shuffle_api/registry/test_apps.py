"""Applications: one run per id, heartbeats, expiry, and what is remembered of the expired."""

from __future__ import annotations

import pytest

from shuffle_api.errors import AppExists, AppExpired, UnknownApp
from shuffle_api.registry import apps as apps_module
from shuffle_api.registry.apps import AppRecord, Apps


def record(app: str = "a", instance: str = "run-1", seen: float = 10.0) -> AppRecord:
    return AppRecord(app, instance, "name", seen)


@pytest.fixture
def apps() -> Apps:
    apps = Apps()
    apps.register(record())
    return apps


def test_unknown_application_is_named(apps: Apps) -> None:
    with pytest.raises(UnknownApp, match="'b'"):
        apps.get("b")


def test_registering_the_same_run_again_is_a_sign_of_life(apps: Apps) -> None:
    apps.register(record(seen=20.0))
    assert apps.get("a") == record(seen=20.0)


def test_registering_another_run_is_refused_and_changes_nothing(apps: Apps) -> None:
    with pytest.raises(AppExists, match="'a'"):
        apps.register(record(instance="run-2", seen=20.0))
    assert apps.get("a") == record()


def test_late_heartbeat_does_not_set_the_clock_back(apps: Apps) -> None:
    apps.heartbeat("a", 30.0)
    apps.heartbeat("a", 20.0)
    assert apps.get("a").seen == 30.0


def test_expiry_takes_those_seen_before_the_time_and_no_others(apps: Apps) -> None:
    apps.register(record("b", seen=10.1))
    assert apps.expire(before=10.0) == []
    assert apps.expire(before=10.1) == ["a"]
    assert list(apps.live) == ["b"]


def test_expired_application_is_told_from_an_unknown_one(apps: Apps) -> None:
    apps.expire(before=11.0)
    for call in (lambda: apps.get("a"), lambda: apps.heartbeat("a", 12.0), lambda: apps.register(record())):
        with pytest.raises(AppExpired, match="'a'"):
            call()


def test_next_run_may_take_the_id_of_an_expired_one(apps: Apps) -> None:
    apps.expire(before=11.0)
    apps.register(record(instance="run-2", seen=12.0))
    assert apps.get("a").instance == "run-2"
    assert apps.expired == {}


def test_only_the_latest_expired_applications_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps_module, "EXPIRED_REMEMBERED", 2)
    apps = Apps()
    for n in (3, 1, 2):
        apps.register(record(f"app-{n}", seen=float(n)))
    apps.expire(before=4.0)
    assert sorted(apps.expired) == ["app-2", "app-3"]
    with pytest.raises(UnknownApp):
        apps.get("app-1")
