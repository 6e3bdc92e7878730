"""Targets say figure, limit and whether it is met; without a figure nothing is met or missed."""

from typing import Any

import pytest

from shuffle_transport.bench.targets import Cases, Target, targets

MIB = 1 << 20


def sizes(ratio: float, blocks_s: int) -> list[dict[str, Any]]:
    return [
        {"way": way, "block_bytes": size, "sides": {"credit": {"ratio": {"median": ratio}, "blocks_s": blocks_s}}}
        for way in ("put", "get")
        for size in (4 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB)
    ]


def test_without_cases_every_target_is_listed_and_none_is_met_or_missed() -> None:
    found = targets({})
    assert len(found) == 16
    assert {(target.figure, target.met) for target in found} == {(None, None)}
    assert all((target.at_least is None) != (target.at_most is None) for target in found)


def test_throughput_targets_come_from_the_credit_streams_ratios() -> None:
    found = {target.name: target for target in targets({"sizes": sizes(0.94, 300_000)})}
    assert found["credit stream / raw Flight, get, 4 MiB blocks"].met is False
    assert found["one stream of 4 KiB blocks, put"].met is True


@pytest.mark.parametrize(("growth", "met"), [(128 * MIB, True), (192 * MIB, True), (193 * MIB, False)])
def test_memory_is_measured_against_budget_and_headroom(growth: int, met: bool) -> None:
    cases: Cases = {
        "isolation": [
            {
                "side": "credit",
                "kept": {"median": 0.95},
                "growth_bytes": {"one_stopped": {"client": 0, "peer": growth}},
                "pool": {"budget": 128 * MIB},
            }
        ]
    }
    found = {target.name: target for target in targets(cases)}
    assert found["one consumer of many stopped: memory of the consumer above the pool's budget"].met is met
    assert found["one consumer of many stopped: memory of the producer above the pool's budget"].figure == -128.0
    assert found["one consumer of many stopped: throughput that the others keep"].met is True


def test_a_target_at_its_limit_is_met() -> None:
    assert Target("t", 0.95, 0.95, None, "ratio").met
    assert Target("t", 5.0, None, 5.0, "ms").met
    assert not Target("t", 5.01, None, 5.0, "ms").met
    assert Target("t", 0.95, 0.95, None, "ratio").report()["met"] is True
