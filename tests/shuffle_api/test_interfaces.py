"""What the interfaces do by themselves: contexts, and refusing half an implementation."""

from __future__ import annotations

import pytest

from shuffle_api.buffer import Buffer
from shuffle_api.interfaces import (
    NO_OPTIONS,
    ShuffleMaster,
    ShufflePlugin,
    ShuffleReader,
    ShuffleWriter,
    SupportsReadBlocks,
    SupportsWriteBlock,
)
from shuffle_api.testing import MemoryShuffle
from shuffle_api.values import BLOCKING, MapOutput


class CountingWriter(ShuffleWriter):
    def __init__(self) -> None:
        self.aborts = 0

    def write(self, partition: int, record: Buffer) -> None:
        raise NotImplementedError

    def commit(self) -> MapOutput:
        raise NotImplementedError

    def abort(self) -> None:
        self.aborts += 1


@pytest.mark.parametrize("interface", [ShuffleMaster, ShuffleWriter, ShuffleReader, ShufflePlugin])
def test_incomplete_implementation_cannot_be_made(interface: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        type("Incomplete", (interface,), {})()


def test_leaving_a_writers_context_aborts() -> None:
    with CountingWriter() as writer:
        assert writer.aborts == 0
    assert writer.aborts == 1


def test_an_error_in_a_writers_context_aborts_and_passes() -> None:
    writer = CountingWriter()
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    assert writer.aborts == 1


def test_plugins_are_blocking_unless_they_say_otherwise() -> None:
    assert ShufflePlugin.mode is BLOCKING


def test_abilities_are_found_by_their_methods() -> None:
    with MemoryShuffle() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 0)
        assert isinstance(plugin.reader(handle, range(1)), SupportsReadBlocks)
    assert not isinstance(CountingWriter(), SupportsWriteBlock)


def test_default_options_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        NO_OPTIONS["x"] = 1  # type: ignore[index]
