"""The relay of the fault runs."""

import random

import pytest

from bench.harness.server import lasting_addresses


def test_no_address_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = lasting_addresses(2)
    ports = [int(address.rpartition(":")[2]) for address in drawn]
    draws = iter([ports[0], ports[0], ports[1]])
    monkeypatch.setattr(random, "randrange", lambda *_: next(draws))
    assert lasting_addresses(2) == drawn
