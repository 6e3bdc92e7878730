"""An application beside the flood: it sends heartbeats, pushes, and reads back what it has pushed, record by record."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Self

from shuffle_api.errors import Overloaded, ShuffleError
from shuffle_api.ids import name_of
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.floods.scene import Scene
from tests.shuffle_server.helpers import read_all, write_map

APP = "victim"
PARTITIONS, MAPS = 8, 2
BEAT_SECONDS = 0.05
TIMEOUT = 60


@dataclass
class Diary:
    """What has happened to the victim: seconds that heartbeats took, rounds of pushes and pulls, what went wrong.

    `refused` counts rounds that the server was too busy for.
    """

    beats: list[float] = field(default_factory=list)
    rounds: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.beats) if self.beats else 0.0

    @property
    def worst(self) -> float:
        return max(self.beats, default=0.0)


class Victim:
    """A context manager. What it writes first it keeps, and reads again at the end."""

    def __init__(self, scene: Scene) -> None:
        self.diary = Diary()
        self._resting = threading.Event()
        self._over = threading.Event()
        self._ends = ExitStack()
        options = {**scene.options, "hand_over": "off", "timeout": TIMEOUT, "retry": TIMEOUT}
        self._plugin = self._ends.enter_context(RemoteShuffle(options))
        self._master = self._ends.enter_context(self._plugin.master(APP))
        self._kept = self._master.register_shuffle(PARTITIONS, MAPS)
        self._written = self._write(self._kept)
        self._run = self._kept.spec.id.app
        credentials = scene.keys.for_app(name_of(self._run))
        self._control = self._ends.enter_context(
            closing(
                ControlClient(str(scene.options["server"]), client="victim", timeout=TIMEOUT, credentials=credentials)
            )
        )
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def work(self) -> Diary:
        """Begin; what happens from now on."""
        self.diary = diary = Diary()
        over = self._over = threading.Event()
        self._threads = [
            threading.Thread(target=each, args=(diary, over), daemon=True) for each in (self._beat, self._shuffle)
        ]
        for thread in self._threads:
            thread.start()
        return diary

    def rest(self) -> None:
        """End what is under way."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT)
            if thread.is_alive():
                self.diary.wrong.append("a heartbeat, push or pull of the victim does not end")

    def check(self) -> None:
        """What was written first is there."""
        try:
            self._compare(self._kept, self._written)
        except ShuffleError as error:
            self.diary.wrong.append(f"the data that was kept: {error}")

    def _beat(self, diary: Diary, over: threading.Event) -> None:
        while not over.wait(BEAT_SECONDS):
            began = time.monotonic()
            try:
                self._control.call("Heartbeat", pb.HeartbeatRequest(app=self._run))
                diary.beats.append(time.monotonic() - began)
            except ShuffleError as error:
                diary.wrong.append(f"heartbeat: {error}")

    def _shuffle(self, diary: Diary, over: threading.Event) -> None:
        while not over.wait(BEAT_SECONDS):
            try:
                handle = self._master.register_shuffle(PARTITIONS, MAPS)
                self._compare(handle, self._write(handle))
                self._master.unregister_shuffle(handle)
                diary.rounds += 1
            except Overloaded:
                diary.refused += 1  # by name, and nothing was lost: the next round tries again
            except ShuffleError as error:
                diary.wrong.append(f"round {diary.rounds}: {error}")

    def _write(self, handle: ShuffleHandle) -> list[tuple[int, bytes]]:
        return sorted(pair for number in range(MAPS) for pair in write_map(self._plugin, handle, number))

    def _compare(self, handle: ShuffleHandle, written: list[tuple[int, bytes]]) -> None:
        read = read_all(self._plugin, handle)
        if read != written:
            self.diary.wrong.append(f"{len(read)} records were read of {len(written)} written, or others")
