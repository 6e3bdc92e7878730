"""A batch job of `remote` or `hybrid`: an engine that runs maps and reads, and does what each error asks for.

One thread decides everything. Drivers and tasks are processes (`tests.faults.explore.actor`) that stop at each event
until they are let go on, so the faults of a moment strike exactly there.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from shuffle_api.errors import AppExists, ShuffleError
from shuffle_api.values import MapOutput
from tests.faults.explore.actor import act
from tests.faults.explore.cluster import Hung, Scene
from tests.faults.explore.errors import AWAY, GONE, LOST, REFUSED
from tests.faults.explore.hands import Hand, Work
from tests.faults.explore.injector import Injector
from tests.faults.explore.ledger import Finding, Ledger
from tests.faults.explore.records import Size
from tests.faults.explore.schedule import APP_TIMEOUT_S, Schedule
from tests.faults.explore.settings import client_options
from tests.faults.explore.stall import Patience, crowd
from tests.faults.explore.task_faults import TASK_FAULTS

CALL_S = 50.0
"""More than a call may take with its retries: one that takes longer hangs."""
JOB_S = 150.0
AGAIN_S = 0.15
LOOK_S = 0.02
REMOVED_S = 25.0
NAME = "nightly"


@dataclass(slots=True)
class Request:
    """Something that the driver is to do."""

    command: str
    arguments: tuple[object, ...]
    then: Callable[[Any], object] = lambda value: None
    not_before: float = 0.0
    answered: bool = False
    value: Any = None


class Found(Exception):
    """A planted bug has shown: there is no more to see."""


class Anew(Exception):
    """The run is over and the job begins again as another one of the same name."""


class BatchJob:
    """One schedule of a batch job. `findings` is what was wrong."""

    def __init__(self, schedule: Schedule, scene: Scene) -> None:
        self.schedule, self.scene = schedule, scene
        self.size = Size(schedule.partitions, schedule.records, schedule.size)
        self.findings: list[Finding] = []
        self.trouble: Counter[str] = Counter()
        self.injector = Injector(scene)
        self._options = client_options(schedule, scene)
        self.hands: list[Hand] = []
        self._made = 0
        self._events: Counter[str] = Counter()
        self._queue: deque[Work] = deque()
        self._runs = self._shuffles = 0
        self._ledgers: list[Ledger] = []
        self.driver: Hand | None = None
        self._asked: deque[Request] = deque()
        self.anew = ""
        self._armed = True
        self._patience = Patience(JOB_S)

    def run(self) -> None:
        """To its end."""
        try:
            while True:
                try:
                    self._run()
                    break
                except Anew:
                    self._leave_run()
            self._expect_nothing_left()
        except Hung as hung:
            self._find("hang", str(hung))
        except Found:
            pass
        finally:
            self.injector.close()
            for hand in self.hands:
                hand.end()

    def _run(self) -> None:
        self._runs += 1
        self._open_driver()
        self._ledgers = []
        for number in range(self.schedule.shuffles):
            self._do(self._registered(number))
        self._pause(self.schedule.idle)
        self._read_again()
        self._armed = False  # what has not struck by now does not
        self._pump(self.injector.quiet)
        self.findings += self.injector.heal()
        if self.schedule.restart:
            self.findings += self.injector.restart_all()
        self._read_again()
        self._ask("close")

    def _read_again(self) -> None:
        for ledger in self._ledgers:
            self._locate(ledger)
            self._reads(ledger)
            self._pump(lambda: not self._working())

    def _registered(self, number: int) -> Ledger:
        size = self.schedule.partitions, self.schedule.maps
        handle = self._ask("register", *size, number)
        self._shuffles += 1
        ledger = Ledger(self._runs, self._shuffles, handle, self.size, self.schedule.maps, lambda: self.scene.may_lose)
        self._ledgers.append(ledger)
        self._reached("register", self.driver)
        return ledger

    def _do(self, ledger: Ledger) -> None:
        for map in range(ledger.maps):
            for _ in range(1 + (map < self.schedule.races)):
                self._queue.append(Work(ledger, map=map))
        if self.schedule.job == "hybrid":
            self._reads(ledger)
        else:
            self._pump(lambda: not self._working())
            self._reads(ledger)
        self._pump(lambda: not self._working())

    def _reads(self, ledger: Ledger) -> None:
        half = ledger.size.partitions // 2
        for partitions in (range(half), range(half, ledger.size.partitions)):
            if partitions:
                self._queue.append(Work(ledger, partitions=partitions))

    # The driver.

    def _open_driver(self) -> None:
        self._asked.clear()
        self.driver = self._new_hand("driver")
        self._ask("master", NAME)

    def _ask(self, command: str, *arguments: object) -> Any:
        """Have the driver do it, again while nobody answers; meanwhile the job goes on."""
        request = Request(command, arguments)
        self._asked.append(request)
        self._pump(lambda: request.answered)
        return request.value

    def _drive(self, now: float) -> None:
        """Give the driver what it is to do next."""
        driver = self.driver
        if driver is None or not driver.idle or driver.ended or not self._asked or self._asked[0].not_before > now:
            return
        driver.give(Work(None), self._asked[0].command, self._asked[0].arguments)

    def _answered(self, driver: Hand) -> None:
        if driver.command == "open" or not self._asked:
            return
        request, error = self._asked[0], driver.error
        if error is None:
            request.answered, request.value = True, driver.value
            self._asked.popleft()
            request.then(driver.value)
            return
        self.trouble[f"{request.command}: {type(error).__name__}"] += 1
        request.not_before = time.monotonic() + AGAIN_S
        if isinstance(error, AppExists):
            request.not_before += APP_TIMEOUT_S / 4  # the run before is still there, until it expires
        elif isinstance(error, GONE):
            self._gone(f"{request.command} of the driver", error)
        elif not isinstance(error, (*AWAY, *REFUSED)):
            self._find("error", f"{request.command} of the driver: {error!r}")

    def _locate(self, ledger: Ledger) -> None:
        """The master's view of it must be that of who was told."""
        self.findings += ledger.located(self._ask("outputs", ledger.handle))

    def _leave_run(self) -> None:
        """Its tasks are late ones now, and its driver is gone or closes it when its successor is at work."""
        self.trouble[f"anew: {self.anew}"] += 1
        self.anew = ""
        self._queue.clear()
        self._asked.clear()
        assert self.driver is not None
        self.driver.last_word = True
        for hand in self.hands:
            hand.late = True

    # Tasks.

    def _pump(self, done: Callable[[], bool]) -> None:
        """Let the job go on until `done`."""
        while not done():
            now = time.monotonic()
            if self._patience.is_over():
                raise Hung(f"not finished after {JOB_S:g} s; errors: {dict(self.trouble)}")
            self.findings += self.injector.failures()
            if self.findings and self.schedule.bugs:
                raise Found
            self._assign(now)
            self._drive(now)
            speaking = wait([hand.actor.pipe for hand in self.hands if not hand.ended], LOOK_S)
            for hand in [hand for hand in self.hands if hand.actor.pipe in speaking]:
                self._hear(hand)
            for hand in list(self.hands):
                self._look_after(hand, now)
            if self.anew:
                raise Anew

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._pump(lambda: time.monotonic() > until)

    def _working(self) -> bool:
        return bool(self._queue) or any(hand.work and hand.work.ledger and not hand.late for hand in self.hands)

    def _assign(self, now: float) -> None:
        writing = any(work.map >= 0 for work in self._queue) or any(
            hand.work and hand.work.map >= 0 and not hand.late for hand in self.hands
        )
        for _ in range(len(self._queue)):
            work = self._queue.popleft()
            waits = work.partitions is not None and writing and self.schedule.job != "hybrid"
            hand = None if waits or work.not_before > now else self._free_hand("read" if work.partitions else "write")
            if hand is None:
                self._queue.append(work)
                continue
            assert work.ledger is not None
            if work.partitions is not None:
                work.lost = frozenset(work.ledger.lost)
                hand.give(work, "read", (work.ledger.handle, work.partitions))
            else:
                work.source = work.ledger.attempt(work.map)
                hand.give(work, "write", (work.ledger.handle, work.source, self.size))

    def _free_hand(self, role: str) -> Hand | None:
        mine = [hand for hand in self.hands if hand.role == role and not hand.late]
        for hand in mine:
            if hand.idle and not hand.ended:
                return hand
        if len(mine) < self.schedule.tasks:
            self._new_hand(role)  # it is to open its plugin first
        return None

    def _new_hand(self, role: str) -> Hand:
        self._made += 1
        hand = Hand(role, act, self.scene.root / f"{role}-{self._made}.log")
        self.hands.append(hand)
        hand.give(Work(None), "open", (self.schedule.job, self._options, self.schedule.bugs))
        return hand

    def _hear(self, hand: Hand) -> None:
        message = hand.hear()
        if message is None:
            return
        if message[0] == "at":
            if message[2] == "commit" and hand.work and hand.work.ledger and hand.work.source:
                hand.work.ledger.asked(hand.work.source)
            if not hand.late:
                self._reached(message[2], hand)
            if not hand.ended:
                hand.go()
            return
        work = hand.finish(message)
        self.scene.stalled = max(self.scene.stalled, 0.0 if hand.was_frozen else message[3])
        if message[0] == "crashed":
            self._find("error", f"{hand.role}: {message[2]}")
        if hand is self.driver and not hand.late:
            self._answered(hand)
        if work.ledger is not None:
            self._written(hand, work) if work.source else self._was_read(hand, work)

    def _written(self, hand: Hand, work: Work) -> None:
        ledger, source, error = work.ledger, work.source, hand.error
        assert ledger is not None
        assert source is not None
        current = ledger in self._ledgers
        if error is None and hand.value is not None:
            if current or ledger.run == self._runs:
                self.findings += ledger.acknowledged(source, hand.value)
            if not hand.late:
                self._reached("committed", hand)
            return
        if isinstance(error, REFUSED):
            ledger.refused(source)
        if hand.late:
            return
        self._failed(error, f"the writer of {source}")
        self.again(Work(ledger, map=work.map))

    def _was_read(self, hand: Hand, work: Work) -> None:
        ledger, error = work.ledger, hand.error
        assert ledger is not None
        assert work.partitions is not None
        if hand.late:
            return
        if error is None and hand.value is not None:
            self.findings += ledger.read(hand.value, work.partitions, work.lost)
            self._reached("done", hand)
            return
        self._failed(error, f"a reader of partitions {work.partitions} of {ledger.handle.spec.id}")
        if isinstance(error, LOST):
            self._lost(ledger, error)
        self.again(Work(ledger, partitions=work.partitions))

    def _lost(self, ledger: Ledger, error: ShuffleError) -> None:
        """Something of what a reader wants is gone: the master says what."""
        named = {error.output.map} if error.output else set()
        self._asked.append(
            Request("outputs", (ledger.handle,), lambda outputs: self._run_again(ledger, named, outputs, error))
        )

    def _run_again(self, ledger: Ledger, named: set[int], outputs: list[MapOutput], error: ShuffleError) -> None:
        acknowledged = set(ledger.told)
        gone = named | set(ledger.missing([output.output.map for output in outputs]))
        if gone & acknowledged and not self.scene.may_lose:
            self._find("dropped", f"maps {sorted(gone & acknowledged)} were acknowledged and are gone: {error}")
        for map in sorted(gone):
            ledger.give_up(map)
            if not any(work.ledger is ledger and work.map == map for work in self._under_way()):
                self.again(Work(ledger, map=map))

    def _under_way(self) -> list[Work]:
        return [*self._queue, *(hand.work for hand in self.hands if hand.work and not hand.late)]

    def _failed(self, error: ShuffleError | None, who: str) -> None:
        if error is None:
            return  # it crashed or was killed
        self.trouble[f"{who.split(' of ')[0]}: {type(error).__name__}"] += 1
        if isinstance(error, GONE):
            self._gone(who, error)
        elif not isinstance(error, (*AWAY, *REFUSED, *LOST)):
            self._find("error", f"{who}: {error!r} {error}")

    def _gone(self, who: str, error: ShuffleError) -> None:
        if not self.scene.may_end_run:
            self._find("dropped", f"{who}: the live run is gone: {error}")
        self.anew = self.anew or type(error).__name__

    def again(self, work: Work) -> None:
        """Queue what is to be done once more."""
        work.not_before = time.monotonic() + AGAIN_S
        self._queue.append(work)

    def _look_after(self, hand: Hand, now: float) -> None:
        hand.release(now)
        if hand.ended and hand.work is not None and not hand.late:
            work, hand.work = hand.work, None
            if hand is self.driver:
                self.anew = "the driver was killed"
            elif work.ledger is not None:
                self.again(Work(work.ledger, map=work.map, partitions=work.partitions))
        if hand.ended and hand is not self.driver:
            hand.late = True
        if hand.work and now > hand.since + CALL_S * crowd() and not hand.held:
            raise Hung(
                f"{hand.role} does not come back from {hand.command}: {hand.actor.stacks()}{self.scene.stacks()}"
            )

    # Faults.

    def _reached(self, event: str, hand: Hand | None) -> None:
        number = self._events[event]
        self._events[event] += 1
        for fault in self.schedule.faults:
            if self._armed and (fault.event, fault.nth) == (event, number):
                if fault.kind in TASK_FAULTS:
                    TASK_FAULTS[fault.kind](self, fault, hand)
                else:
                    self.injector.begin(fault)

    # The end.

    def _expect_nothing_left(self) -> None:
        until = time.monotonic() + REMOVED_S
        while left := self.scene.files():
            if time.monotonic() > until:
                self._find("left", f"{len(left)} files are left {REMOVED_S:g} s after all runs have ended: {left[:3]}")
                return
            time.sleep(0.1)

    def _find(self, kind: str, what: str) -> None:
        self.findings.append(Finding(kind, what))
