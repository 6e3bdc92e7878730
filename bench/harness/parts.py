"""A benchmark of several parts: which of them to run, and what the report says beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.harness import machine

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")


def measure(
    parameters: P, scratch: Path, parts: Sequence[str], known: Mapping[str, Callable[[P, Path], dict[str, Any]]]
) -> dict[str, Any]:
    """The figures of some of the ``known`` parts; each says how busy the machine was in the minute before it."""
    report: dict[str, Any] = {"machine": machine.facts(), "parameters": asdict(parameters)}
    for part in parts:
        load = machine.load()
        report[part] = {"load_before": load, **known[part](parameters, scratch)}
    return report
