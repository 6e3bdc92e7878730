"""The floods themselves want the machine for minutes: `python -m tests.floods` (CONTRIBUTING.md)."""

from __future__ import annotations

from tests.floods.kinds import KINDS


def test_there_are_at_least_fifteen_kinds_with_and_without_a_token() -> None:
    tenants = [name for name in KINDS if name.startswith("tenant-")]
    assert len(KINDS) - len(tenants) >= 15
    assert len(tenants) >= 15
