"""Runs a flood: the hostile peer in a process of its own, the victim in this one, and what the servers take meanwhile.

One hostile process serves several floods. It ends with this one.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shuffle_transport.grpc_polling import poll_in_program
from tests.floods.hostile import Press
from tests.floods.kinds import KINDS, Kind
from tests.floods.scene import BUDGET, MIB, SCENES, SLACK, Scene, Target, Usage, until
from tests.floods.victim import Victim

BACK_SECONDS = 10.0  # for threads and descriptors to be given back
END_SECONDS = 60.0  # for a hostile peer to end what it does
NOTHING = Usage(0, 0, 0)
POOLED_THREADS = 16  # by which pools of gRPC, Arrow and the lanes may have grown towards their size
ROUNDS = 1  # that the victim completes, at least


@dataclass
class Result:
    """What a flood has shown; `wrong` is empty when all bounds held. Memory in bytes, over that of a server at rest."""

    kind: str
    seconds: float
    sent: int = 0
    beats: int = 0
    median_ms: float = 0.0
    worst_ms: float = 0.0
    rounds: int = 0
    memory: int = 0
    before: Usage = NOTHING
    after: Usage = NOTHING
    back_s: float | None = None
    unbounded: str = ""
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Hostile:
    """A process that floods."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._mine, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, kind: Kind, target: Target, seconds: float) -> None:
        self._mine.send((kind.name, target, seconds))

    def end(self, within: float) -> int:
        """What it has sent. Raises TimeoutError when it does not end, or has failed."""
        if not self._mine.poll(within):
            raise TimeoutError(f"the hostile peer has not ended after {within:g} s")
        sent = self._mine.recv()
        if isinstance(sent, str):
            raise TimeoutError(f"the hostile peer failed: {sent}")
        return int(sent)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._mine.close()


def _serve(orders: Connection, parent: int) -> None:
    poll_in_program()
    while os.getppid() == parent:
        try:
            name, target, seconds = orders.recv()
        except EOFError:
            return
        give_up = time.monotonic() + seconds
        press = Press(target, lambda give_up=give_up: time.monotonic() >= give_up)  # type: ignore[misc]
        try:
            with press.ends:
                KINDS[name].flood(press)
            orders.send(press.sent)
        except Exception as error:  # noqa: BLE001 - the other process says what it was
            orders.send(f"{name}: {error!r}")


class Ground:
    """Servers, the victim that uses them, and a hostile process, for floods one after the other."""

    def __init__(self, scene: Scene, victim: Victim, hostile: Hostile) -> None:
        self._scene, self._victim, self._hostile = scene, victim, hostile
        self._warm()
        self._rest = scene.usage()

    def _warm(self) -> None:
        """The victim has its connections, and the servers have their threads."""
        diary = self._victim.work()
        until(lambda: diary.rounds >= 3 or bool(diary.wrong), END_SECONDS)
        self._victim.rest()
        assert not diary.wrong, diary.wrong

    def flood(self, kind: Kind, seconds: float, back: float = BACK_SECONDS) -> Result:
        """Raises nothing that a server does: it is in the result.

        :param back: seconds for threads and descriptors to be given back.
        """
        result = Result(kind.name, seconds, unbounded=kind.unbounded)
        result.before, details = self._scene.usage(), self._scene.details()
        self._scene.forget_peak()
        diary = self._victim.work()
        self._hostile.begin(kind, self._scene.target, seconds)
        try:
            result.sent = self._hostile.end(seconds + END_SECONDS)
        except TimeoutError as error:
            result.wrong.append(str(error))
        result.memory = self._scene.peak() - self._rest.memory
        self._victim.rest()
        result.back_s = until(lambda: self._given_back(result.before), back)
        result.after, left = self._scene.usage(), self._scene.details() - details
        self._victim.check()
        result.beats, result.rounds = len(diary.beats), diary.rounds
        result.median_ms, result.worst_ms = 1000 * diary.median, 1000 * diary.worst
        self._judge(kind, result, diary.wrong)
        if result.back_s is None:
            result.wrong.append(f"not given back: {dict(left)}")
        return result

    def _given_back(self, before: Usage) -> bool:
        now = self._scene.usage()
        return now.threads <= before.threads + POOLED_THREADS and now.files <= before.files

    def _judge(self, kind: Kind, result: Result, wrong: list[str]) -> None:
        result.wrong += wrong
        if not result.sent:
            result.wrong.append("nothing was sent")
        if not result.beats or result.rounds < ROUNDS:
            result.wrong.append(f"{result.beats} heartbeats and {result.rounds} rounds of the victim")
        if result.back_s is None:
            result.wrong.append(f"{result.before} before, {result.after} some time after the flood")
        if result.memory > BUDGET + SLACK and not kind.unbounded:
            result.wrong.append(
                f"{result.memory // MIB} MiB over the memory at rest, {(BUDGET + SLACK) // MIB} are due"
            )
        if any(not server.running for server in self._scene.servers):
            result.wrong.append("a server has ended")


@contextmanager
def ground(scene: str, root: Path) -> Iterator[Ground]:
    with SCENES[scene](root) as servers, Victim(servers) as victim:
        hostile = Hostile()
        try:
            yield Ground(servers, victim, hostile)
        finally:
            hostile.close()
