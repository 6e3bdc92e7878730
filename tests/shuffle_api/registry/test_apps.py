"""Applications: one run per id, expiry, and what is remembered of the expired."""

from __future__ import annotations

import pytest

from shuffle_api.errors import AppExists, AppExpired, UnknownApp
from shuffle_api.registry import apps as apps_module
from shuffle_api.registry.apps import AppRecord, Apps


def record(app: str = "a", instance: str = "run-1") -> AppRecord:
    return AppRecord(app, instance, "name")


@pytest.fixture
def apps() -> Apps:
    apps = Apps()
    apps.register(record())
    return apps


def test_unknown_application_is_named(apps: Apps) -> None:
    with pytest.raises(UnknownApp, match="'b'"):
        apps.get("b")


def test_registering_the_same_run_again_changes_nothing(apps: Apps) -> None:
    apps.register(record())
    assert apps.live == {"a": record()}


def test_registering_another_run_is_refused_and_changes_nothing(apps: Apps) -> None:
    with pytest.raises(AppExists, match="'a'"):
        apps.register(record(instance="run-2"))
    assert apps.get("a") == record()


def test_expiry_takes_the_named_ones_that_are_live_and_no_others(apps: Apps) -> None:
    apps.register(record("b"))
    assert apps.expire(["nobody", "a", "a"]) == ["a"]
    assert list(apps.live) == ["b"]
    assert apps.expire(["a"]) == []


def test_expired_application_is_told_from_an_unknown_one(apps: Apps) -> None:
    apps.expire(["a"])
    with pytest.raises(AppExpired, match="'a'"):
        apps.get("a")


@pytest.mark.parametrize("instance", ["run-1", "run-2"])
def test_the_id_of_an_expired_run_is_free_for_the_same_run_and_the_next(apps: Apps, instance: str) -> None:
    apps.expire(["a"])
    apps.register(record(instance=instance))
    assert apps.get("a").instance == instance
    assert apps.expired == {}


def test_only_the_latest_expired_applications_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps_module, "EXPIRED_REMEMBERED", 2)
    apps = Apps()
    for n in (1, 2, 3):
        apps.register(record(f"app-{n}"))
    apps.expire(["app-3"])
    apps.expire(["app-1", "app-2"])
    assert list(apps.expired) == ["app-1", "app-2"]
    with pytest.raises(UnknownApp):
        apps.get("app-3")
