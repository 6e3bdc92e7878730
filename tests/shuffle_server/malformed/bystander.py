"""The job that must not notice: writes and reads on the server all the while, on connections of its own."""

from __future__ import annotations

import threading

from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map

APP = "bystander"
ROUNDS_AT_LEAST = 3
PAUSE = 0.1  # seconds between rounds: it shares its processor with those who send garbage


class Bystander:
    """Until `finish`: register a shuffle, write its maps, read every record back, and now and then drop one.

    A failure is kept and raised by `finish`. The data of the last round stays, committed.
    """

    def __init__(self, control: str) -> None:
        self._plugin = RemoteShuffle({"server": control, "timeout": 120, "retry": 0, "codec": "lz4"})
        self._master = self._plugin.master(APP)
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._last: ShuffleHandle | None = None
        self.rounds = self.records = 0
        self._thread = threading.Thread(target=self._run, name="bystander")
        self._thread.start()

    def finish(self) -> None:
        """End after the present round; raises what went wrong in any of them."""
        self._done.set()
        self._thread.join(300)
        assert not self._thread.is_alive(), "the bystander hangs"
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Leave the server, and with that all data."""
        self._done.set()
        self._thread.join(300)
        self._master.close()
        self._plugin.close()

    def _run(self) -> None:
        try:
            while self.rounds < ROUNDS_AT_LEAST or not self._done.is_set():
                self._round()
                self._done.wait(PAUSE)
        except BaseException as failure:  # noqa: BLE001  # whatever it is belongs to the thread that asks
            self._failure = failure

    def _round(self) -> None:
        handle = self._master.register_shuffle(8, 2)
        written = sorted(write_map(self._plugin, handle, 0) + write_map(self._plugin, handle, 1))
        assert read_all(self._plugin, handle) == written
        self.records += len(written)
        self.rounds += 1
        if self._last is not None:
            self._master.unregister_shuffle(self._last)
        self._last = handle
