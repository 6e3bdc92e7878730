"""The names of registries, and which of them an application belongs to."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_run, name_of, new_run, registry_of, run_at
from shuffle_server.registry_names import home, parse_registries

APPS = [f"app-{n}" for n in range(3000)]


def test_registries_are_written_with_their_masters_and_their_order_does_not_matter() -> None:
    expected = {"a": "h1:9110,h2:9110", "b": "h3:9110"}
    assert parse_registries("a=h1:9110,h2:9110,b=h3:9110", "--masters") == expected
    assert parse_registries("b=h3:9110, a=h1:9110,h2:9110", "--masters") == expected
    assert list(parse_registries("b=h3:9110,a=h1:9110", "--masters")) == ["a", "b"]


def test_addresses_before_the_first_name_are_of_the_registry_without_one() -> None:
    assert parse_registries("h1:9110,[::1]:9110", "--master") == {"": "h1:9110,[::1]:9110"}
    assert parse_registries("h1:9110,h2:9110,b=h3:9110", "--master") == {"": "h1:9110,h2:9110", "b": "h3:9110"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=h1:9110,a=h2:9110", "has registry 'a' twice"),
        ("a=h1:9110,b=h2:9110,a=h3:9110", "has registry 'a' twice"),
        ("a=h1:9110,b=h1:9110", "gives h1:9110 to registry 'a' and to 'b'"),
        ("h1:9110,b=h1:9110", "gives h1:9110 to registry '' and to 'b'"),
        ("a=h1:9110,b=", "is not HOST:PORT"),
        ("a=h1:9110,,b=h2:9110", "is not HOST:PORT"),
        ("=h1:9110", "'' is no name of a registry"),
        ("a~b=h1:9110", "'a~b' is no name of a registry"),
        (f"{'a' * 33}=h1:9110", "is no name of a registry"),
        ("", "is not HOST:PORT"),
    ],
)
def test_what_names_no_registries_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_registries(text, "--masters")
    assert why in str(refused.value)


def test_an_application_has_the_same_home_in_whichever_order_the_registries_are_listed() -> None:
    names = ["a", "b", "c", ""]
    homes = [home(app, names) for app in APPS]
    for _ in range(3):
        random.shuffle(names)
        assert [home(app, names) for app in APPS] == homes


def test_applications_are_spread_evenly_and_a_new_registry_takes_only_its_own() -> None:
    before = {app: home(app, ("a", "b")) for app in APPS}
    after = {app: home(app, ("a", "b", "c")) for app in APPS}
    assert min(Counter(before.values()).values()) > len(APPS) * 0.45
    assert {after[app] for app in APPS if after[app] != before[app]} == {"c"}
    assert min(Counter(after.values()).values()) > len(APPS) * 0.28


def test_a_run_carries_its_registry_and_stays_a_run_of_its_application() -> None:
    run = new_run("daily")
    at_b = run_at(run, "b")
    assert (registry_of(at_b), name_of(at_b)) == ("b", "daily")
    assert check_run(at_b) == at_b
    assert run_at(run, "") == run
    assert run_at(at_b, "c") == run_at(run, "c")
    assert registry_of(run) == registry_of("daily") == ""


@pytest.mark.parametrize("run", ["app~", "app~i~", "app~i~a~b", "app~~b", f"app~i~{'a' * 33}", "app~i~a.b"])
def test_what_is_no_run_is_refused(run: str) -> None:
    with pytest.raises(InvalidArgument):
        check_run(run)
