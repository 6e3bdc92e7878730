"""A driver or a task of a batch job, as a process: it does one command after the other and says how far it is.

At each event of a command it waits until the explorer lets it go on. So a fault strikes exactly there, and a task that
is not let go on is one that comes back late.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import Options, ShuffleMaster, ShufflePlugin
from shuffle_api.values import MapOutput, ShuffleHandle
from shuffle_plugins.hybrid import HybridShuffle
from shuffle_plugins.remote import RemoteShuffle
from tests.faults.explore import planted
from tests.faults.explore.processes import become
from tests.faults.explore.records import Record, Size, Source, written
from tests.faults.explore.stall import Stall

PLUGINS: dict[str, Callable[[Options], ShufflePlugin]] = {"remote": RemoteShuffle, "hybrid": HybridShuffle}

Reach = Callable[[str], None]
"""Says that an event is reached, and returns when the command may go on."""


class Player:
    """What a process does, by name of command."""

    def __init__(self) -> None:
        self._plugin: ShufflePlugin | None = None
        self._master: ShuffleMaster | None = None

    def open(self, reach: Reach, plugin: str, options: Options, bugs: tuple[str, ...]) -> None:
        planted.install(bugs)
        self._plugin = PLUGINS[plugin](options)

    def master(self, reach: Reach, app: str) -> None:
        self._master = self._opened.master(app)

    def register(self, reach: Reach, partitions: int, maps: int, shuffle: int | None) -> ShuffleHandle:
        return self._mastering.register_shuffle(partitions, maps, shuffle=shuffle)

    def outputs(self, reach: Reach, handle: ShuffleHandle) -> list[MapOutput]:
        return self._mastering.map_outputs(handle)

    def unregister(self, reach: Reach, handle: ShuffleHandle) -> None:
        self._mastering.unregister_shuffle(handle)

    def close(self, reach: Reach) -> None:
        self._mastering.close()

    def write(self, reach: Reach, handle: ShuffleHandle, source: Source, size: Size) -> MapOutput:
        with self._opened.writer(handle, MapAttempt(source.map, source.attempt)) as writer:
            reach("open")
            for number, (partition, record) in enumerate(written(source, size)):
                if number == size.records // 2:
                    reach("half")
                writer.write(partition, record)
            reach("commit")
            return writer.commit()

    def read(self, reach: Reach, handle: ShuffleHandle, partitions: range) -> list[Record]:
        with self._opened.reader(handle, partitions) as reader:
            reach("read")
            records = []
            for record in reader:
                records.append(record)
                if len(records) == 1:
                    reach("first")
            return records

    @property
    def _opened(self) -> ShufflePlugin:
        assert self._plugin is not None
        return self._plugin

    @property
    def _mastering(self) -> ShuffleMaster:
        assert self._master is not None
        return self._master


def act(pipe: Connection, log: Path) -> None:
    """Main of the process. It answers ("done", number, value, stall), ("failed", number, error, stall) or ("crashed",
    number, traceback, stall), and says ("at", number, event) before."""
    become(log)
    player, stall = Player(), Stall()
    try:
        while True:
            number, command, arguments = pipe.recv()

            def reach(event: str, number: int = number) -> None:
                pipe.send(("at", number, event))
                if pipe.recv() != number:
                    raise EOFError

            try:
                value = getattr(player, command)(reach, *arguments)
                pipe.send(("done", number, value, stall.longest))
            except ShuffleError as error:
                pipe.send(("failed", number, error, stall.longest))
            except (EOFError, BrokenPipeError):
                return
            except Exception:  # noqa: BLE001  (that one came is the finding)
                pipe.send(("crashed", number, traceback.format_exc(), stall.longest))
    except (EOFError, OSError):
        return
