"""Workers that several registries share: a master of each, the workers, all processes of their own.

    python -m bench.shared_workers

runs jobs at two registries with four workers, ends one master with `kill -9`, starts it again a second later as a
supervisor does, and prints the longest round of the jobs of each. In a round a job registers a shuffle, writes its
maps, reads them back and compares.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

from bench.harness.cluster import end, wait_until
from bench.harness.server import ServerProcess, lasting_addresses
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.registry_names import home

PARTITIONS, MAPS = 4, 4
NAMES = ("a", "b")


class SharedWorkers:
    """A context manager. Its processes may be killed and restarted; those that run at the end are stopped.

    :param options: of the masters.
    :ivar masters: of each registry, by its name.
    :ivar listed: the option of all of them: `a=HOST:PORT,b=HOST:PORT`.
    """

    def __init__(self, root: Path, workers: int, names: Sequence[str] = NAMES, *options: str) -> None:
        self.root, self._options = root, options
        self._addresses = dict(zip(names, lasting_addresses(len(names)), strict=True))
        self.listed = listed(self._addresses)
        self._stack = ExitStack()
        try:
            self.masters = {name: self._start_master(name) for name in names}
            self.workers = [self.add_worker(f"worker-{n}") for n in range(workers)]
        except BaseException:
            self._stack.close()
            raise

    def _start_master(self, name: str) -> ServerProcess:
        # Each has them in another order: all that matters is which there are.
        others = listed(dict(sorted(self._addresses.items(), reverse=name != min(self._addresses))))
        options = ("--registry", name, "--masters", others, *self._options)
        return self._start(f"master-{name}", options, "master", self._addresses[name])

    def add_worker(self, name: str, listed: str = "") -> ServerProcess:
        """A worker of all registries, or of those that are listed."""
        return self._start(name, ("--master", listed or self.listed), "worker")

    def _start(self, name: str, options: Sequence[str], role: str, listen: str = "127.0.0.1:0") -> ServerProcess:
        log = self.root / f"{name}.log"
        process = ServerProcess(self.root / name, log, options, role=role, listen=listen)
        self._stack.callback(end, process)
        return process

    def __enter__(self) -> SharedWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


class Job:
    """An application in a thread of this process that shuffles round after round until `stop`.

    :ivar rounds: that it has finished; each has read back what it wrote.
    :ivar longest: seconds that a round took since `watch`.
    :ivar error: why it ended before, or None.
    """

    def __init__(self, server: str, app: str) -> None:
        self.rounds, self.longest = 0, 0.0
        self.error: BaseException | None = None
        self._server, self._app = server, app
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"job {app}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with RemoteShuffle({"server": self._server, "timeout": 120, "retry": 120}) as plugin:
                self._rounds(plugin)
        except BaseException as error:
            self.error = error
            raise

    def _rounds(self, plugin: RemoteShuffle) -> None:
        with plugin.master(self._app) as master:
            while not self._stopping.is_set():
                began = time.monotonic()
                handle = master.register_shuffle(PARTITIONS, MAPS)
                written = []
                for map_id in range(MAPS):
                    with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
                        for n in range(50):
                            record = f"{self._app} {self.rounds} {map_id} {n}".encode()
                            writer.write(n % PARTITIONS, record)
                            written.append((n % PARTITIONS, record))
                        writer.commit()
                with plugin.reader(handle, range(PARTITIONS)) as reader:
                    if sorted(reader) != sorted(written):
                        raise AssertionError(f"round {self.rounds} of {self._app} read other records than it wrote")
                master.unregister_shuffle(handle)
                self.rounds += 1
                self.longest = max(self.longest, time.monotonic() - began)

    def watch(self) -> None:
        """Have `longest` begin anew."""
        self.longest = 0.0

    def await_rounds(self, more: int) -> None:
        """Return when it has finished so many more rounds. Raises what ended it."""
        until = self.rounds + more
        wait_until(lambda: self.rounds >= until or self.error is not None, f"{more} rounds of {self._app}")
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def app_of(registry: str, number: int = 0, names: Sequence[str] = NAMES) -> str:
    """The name of an application that belongs to this one of the registries, another one for each number."""
    return next(islice((app for app in map("job-{}".format, count()) if home(app, names) == registry), number, None))


def listed(masters: Mapping[str, str]) -> str:
    """`a=HOST:PORT,b=HOST:PORT`."""
    return ",".join(f"{name}={address}" if name else address for name, address in masters.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--down", type=float, default=1.0, help="seconds until the master is started again")
    down = parser.parse_args().down
    with tempfile.TemporaryDirectory() as directory, SharedWorkers(Path(directory), 4) as cluster:
        victim, survivor = cluster.masters["b"], cluster.masters["a"]
        jobs = {name: [Job(survivor.control, app_of(name, n)) for n in range(2)] for name in NAMES}
        every = [job for each in jobs.values() for job in each]
        for job in every:
            job.await_rounds(5)
            job.watch()
        for job in every:
            job.await_rounds(20)
        print("before:", {name: f"{max(job.longest for job in each):.2f} s" for name, each in jobs.items()})
        for job in every:
            job.watch()
        killed = time.monotonic()
        victim.kill()
        time.sleep(down)
        victim.restart()
        print(f"the master of b was away for {time.monotonic() - killed:.2f} s")
        for job in every:
            job.await_rounds(10)
        print("killed:", {name: f"{max(job.longest for job in each):.2f} s" for name, each in jobs.items()})
        for job in every:
            job.stop()


if __name__ == "__main__":
    main()
