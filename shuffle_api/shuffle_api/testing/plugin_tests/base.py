"""What the tests share: fixtures, the flags a plugin's author sets, and helpers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import ClassVar, TypeVar

import pytest

from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.values import MapOutput, ShuffleHandle

T = TypeVar("T")

DEADLINE = 60.0
"""Seconds that anything in the exam may take before it counts as hanging."""


class PluginTestBase:
    """Fixtures and flags. Override `plugin_class`, and others that do not fit."""

    plugin_class: ClassVar[type[ShufflePlugin]]

    supports_blocks: ClassVar[bool] = False
    """Writers are `SupportsWriteBlock` and readers `SupportsReadBlocks`."""

    supports_batches: ClassVar[bool] = False
    """Writers are `SupportsWriteBatch` and readers `SupportsReadBatches`, in shuffles of content `arrow`."""

    can_lose: ClassVar[bool] = False
    """`lose_map_output` is overridden."""

    @pytest.fixture
    def options(self) -> dict[str, OptionValue]:
        """The options to open the plugin with. The same options open it again, as another task would."""
        return {}

    @pytest.fixture
    def arrow_options(self, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
        """The options with which a driver's shuffles have the content `arrow`; asked for with `supports_batches`."""
        return options | {"content": "arrow"}

    @pytest.fixture
    def plugin(self, options: dict[str, OptionValue]) -> Iterator[ShufflePlugin]:
        """The plugin under test, open."""
        with self.plugin_class(options) as plugin:
            yield plugin

    @pytest.fixture
    def app(self) -> str:
        """An application id that nobody else uses."""
        return f"exam-{uuid.uuid4().hex}"

    @pytest.fixture
    def master(self, plugin: ShufflePlugin, app: str) -> Iterator[ShuffleMaster]:
        """The master of application `app`."""
        with plugin.master(app) as master:
            yield master

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        """Destroy the data of a committed map output, so that the service knows it is gone."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ helpers

    def read_written(
        self, plugin: ShufflePlugin, handle: ShuffleHandle, write: Callable[[], None]
    ) -> list[oracle.Record]:
        """All records of the shuffle that `write` writes; read meanwhile if the writer would wait for a reader."""
        records: list[oracle.Record] = []

        def read() -> None:
            records.extend(oracle.read(plugin, handle))

        self.both(plugin, write, read)
        return records

    def both(self, plugin: ShufflePlugin, write: Callable[[], None], read: Callable[[], None]) -> None:
        """Write, then read; meanwhile if the writer would wait for a reader."""
        if plugin.mode.bounded:
            in_threads(write, read)
        else:
            write()
            read()

    def stored(self, plugin: ShufflePlugin, master: ShuffleMaster, workload: oracle.Workload) -> ShuffleHandle:
        """A shuffle in which attempt 0 of each map has committed. Needs a mode that is not bounded."""
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        handle = master.register_shuffle(workload.partitions, workload.maps)
        for attempt in workload.attempts():
            oracle.write(plugin, handle, workload, attempt)
        return handle

    def shuffle(
        self, plugin: ShufflePlugin, master: ShuffleMaster, *, partitions: int = 1, maps: int = 1
    ) -> ShuffleHandle:
        """A shuffle nothing is written to yet, of a mode in which what has committed stays to be read."""
        self.needs(plugin.mode.reconsumable and not plugin.mode.bounded, "keeps what has committed")
        return master.register_shuffle(partitions, maps)

    def needs(self, ability: bool, what: str) -> None:
        """Skip the test unless the plugin has the ability."""
        if not ability:
            pytest.skip(f"only for a plugin that {what}")


def in_threads(*calls: Callable[[], T]) -> list[T]:
    """Run the calls at once, a thread each; their results in order, or the first error.

    :raises TimeoutError: one takes longer than `DEADLINE`.
    """
    futures = [Future[T]() for _ in calls]
    for call, future in zip(calls, futures, strict=True):
        # Daemons: a plugin that hangs fails its test and does not keep the process alive.
        threading.Thread(target=_run, args=(call, future), name=f"exam {call}", daemon=True).start()
    return [future.result(timeout=DEADLINE) for future in futures]


def _run(call: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the caller of in_threads gets it
        future.set_exception(error)
