"""Any schedule of writes, sends, grants, acknowledgements and reconnects, explored by hypothesis.

Two ends of one stream are joined by two wires. The data wire keeps its order; grants may be delivered in any
order and more than once. What must hold whatever happens: every block arrives once and in order, no sender
exceeds its credit (counted here, independently of the code under test), no honest sender is refused, memory
stays within the window, and wherever a schedule stops, delivering what is under way leads to the end (no deadlock).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shuffle_transport.credits import INITIAL_CREDIT, UNANNOUNCED, GrantPolicy, ReceiveWindow, SendWindow
from shuffle_transport.resume import HeldBlocks, SentBlocks

MIB = 1 << 20
EDGES = [0, 1, UNANNOUNCED, UNANNOUNCED + 1, MIB // 4, MIB // 2, MIB - 1, MIB, MIB + 1]
EDGES += [2 * MIB, 3 * MIB, 4 * MIB, 8 * MIB, 9 * MIB, 20 * MIB]
SIZES = st.one_of(st.sampled_from(EDGES), st.integers(0, 10 * MIB))


@dataclass(frozen=True)
class Batch:
    """What is on the data wire: blocks (their sizes in bytes) and, maybe, an announced backlog."""

    blocks: tuple[int, ...] = ()
    backlog: int | None = None
    spent: int | None = None

    @property
    def size(self) -> int:
        return sum(self.blocks)


@dataclass
class Ledger:
    """What docs/protocol.md lets a sender do, counted anew from its text."""

    granted: int = 1 << 20
    sent: int = 0
    window: int = 1 << 20

    def hear(self, granted: int) -> None:
        self.granted = max(self.granted, granted)
        self.window = max(self.window, self.granted - self.sent)

    def may_send(self, n: int) -> bool:
        left = self.granted - self.sent
        return n == 0 or n <= left or (n > self.window and left >= self.window)


@dataclass
class Wires:
    data: deque[Batch] = field(default_factory=deque)
    replies: list[tuple[int, int]] = field(default_factory=list)  # granted, blocks_held
    old_replies: list[tuple[int, int]] = field(default_factory=list)


class PushMachine(RuleBasedStateMachine):
    """A push with resume; subclasses say what kind of window and of sender."""

    elastic = False
    announced = False

    @initialize(maximum=st.sampled_from([MIB, MIB + 1, 3 * MIB, 8 * MIB]), start=st.sampled_from([MIB, 8 * MIB]))
    def begin(self, maximum: int, start: int) -> None:
        self.maximum = maximum
        self.target = min(maximum, start)  # where an elastic window starts
        self.blocks: list[int] = []  # all blocks written so far
        self.batches: list[int] = []  # blocks per batch not yet sent for the first time
        self.place, self.held = SentBlocks(), HeldBlocks()
        self.delivered: list[int] = []
        self.largest = 0
        self.pressed = self.waited_for = False
        self.connect()

    def connect(self) -> None:
        self.wires = Wires()
        self.send_window = SendWindow()
        self.ledger = Ledger()
        self.receive_window = ReceiveWindow(
            GrantPolicy(self.maximum, elastic=self.elastic, announced=self.announced), target=self.target
        )
        self.holding: deque[int] = deque()  # sizes of batches that arrived and are not consumed
        self.place = self.place.reconnect()
        self.held = self.held.open(self.place.next)
        self.announced_waiting = False

    # ---------------------------------------------------------------- the sender

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=3))
    def write(self, sizes: list[int]) -> None:
        self.blocks += sizes
        self.batches.append(len(sizes))

    @precondition(lambda self: self.place.next < len(self.blocks))
    @rule(backlog=st.sampled_from([None, 0, 1, MIB, 50 * MIB]))
    def send(self, backlog: int | None) -> None:
        count, again = self.next_batch()
        assert not again or self.place.next in self.place.retained
        blocks = tuple(self.blocks[self.place.next : self.place.next + count])
        size = sum(blocks)
        after = self.send_window.try_send(size)
        if not self.announced:
            assert (after is not None) == self.ledger.may_send(size)
        if after is None:
            self.wait()
            return
        assert self.ledger.may_send(size) or size > INITIAL_CREDIT <= self.send_window.available
        self.send_window, self.ledger.sent = after, self.ledger.sent + size
        self.largest = max(self.largest, size)
        self.place = self.place.send(count)
        if not again:
            self.batches.pop(0)
        # A sender that has not agreed to announce may say anything, or nothing.
        self.wires.data.append(Batch(blocks, None if self.announced else backlog))
        self.announced_waiting = False

    def next_batch(self) -> tuple[int, bool]:
        """Blocks in the next batch, and whether they were sent before: those go one by one, cut differently."""
        return (1, True) if self.place.next < self.place.written else (self.batches[0], False)

    def wait(self) -> None:
        if self.announced and not self.announced_waiting:
            waiting = sum(self.blocks[self.place.next :])
            if waiting <= UNANNOUNCED:
                return
            self.send_window = self.send_window.waits(waiting)
            self.wires.data.append(Batch(backlog=waiting, spent=self.send_window.sent))
            self.announced_waiting = True

    @precondition(lambda self: self.announced and self.place.next == len(self.blocks))
    @rule()
    def idle(self) -> None:
        self.send_window = self.send_window.idle()
        self.wires.data.append(Batch(backlog=0))

    @precondition(lambda self: self.wires.replies)
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        self.hear_reply(data.draw(st.integers(0, len(self.wires.replies) - 1)))

    def hear_reply(self, i: int) -> None:
        granted, held = self.wires.replies.pop(i)
        self.wires.old_replies.append((granted, held))
        self.send_window = self.send_window.granted_to(granted)
        self.ledger.hear(granted)
        self.place = self.place.acknowledge(held)

    @precondition(lambda self: self.wires.old_replies)
    @rule(data=st.data())
    def hear_again(self, data: st.DataObject) -> None:
        granted, held = data.draw(st.sampled_from(self.wires.old_replies))
        before = self.send_window, self.place
        self.send_window, self.place = self.send_window.granted_to(granted), self.place.acknowledge(held)
        assert (self.send_window, self.place) == before

    # -------------------------------------------------------------- the receiver

    @precondition(lambda self: self.wires.data)
    @rule(hungry=st.booleans())
    def arrive(self, hungry: bool) -> None:
        batch = self.wires.data.popleft()
        self.receive_window = self.receive_window.received(batch.size, batch.backlog, spent=batch.spent, hungry=hungry)
        start = self.held.next
        skip, self.held = self.held.receive(len(batch.blocks))
        self.delivered += range(start + skip, start + len(batch.blocks))
        if batch.blocks:
            self.holding.append(batch.size)
        self.grant()

    @precondition(lambda self: self.holding)
    @rule()
    def consume(self) -> None:
        self.receive_window = self.receive_window.consumed(self.holding.popleft())
        self.grant()

    def grant(self) -> None:
        if self.waited_for:
            self.receive_window = self.receive_window.smaller()
        before = self.receive_window
        after = before.grant(pressed=self.pressed)
        if after is not None:
            assert after.granted > before.granted
            assert not self.pressed or after.charge <= before.charge
            self.receive_window = after
            self.wires.replies.append((after.granted, self.held.held))

    @rule()
    def toggle_pressure(self) -> None:
        self.pressed = not self.pressed

    @rule()
    def toggle_waiting(self) -> None:
        """Others begin to wait for memory, or do no more."""
        self.waited_for = not self.waited_for

    # ------------------------------------------------------------------ the rest

    @rule()
    def reconnect(self) -> None:
        self.connect()

    @rule()
    def run_dry(self) -> None:
        """Deliver and consume all that is under way, and send all that is written: that must come to an end."""
        while True:
            before = self.place, self.send_window
            if self.place.next < len(self.blocks):
                self.send(None)
            while self.wires.data:
                self.arrive(False)
            while self.holding:
                self.consume()
            while self.wires.replies:
                self.hear_reply(0)
            if self.place.next == len(self.blocks) and not self.wires.data:
                break
            assert (self.place, self.send_window) != before, f"deadlock: {self.send_window}, {self.receive_window}"
        assert len(self.delivered) == len(self.blocks)

    @invariant()
    def each_block_arrives_once_and_in_order(self) -> None:
        if hasattr(self, "delivered"):
            assert self.delivered == list(range(len(self.delivered)))

    @invariant()
    def what_may_have_to_be_sent_again_is_kept(self) -> None:
        if hasattr(self, "place"):
            assert self.place.retained.start <= self.held.held
            assert self.place.retained.stop == self.place.written

    @invariant()
    def memory_stays_within_the_window(self) -> None:
        if not hasattr(self, "receive_window"):
            return
        window = self.receive_window
        held = sum(self.holding)
        assert window.arrived - window.released == held
        assert window.granted - window.released <= self.maximum
        assert held <= self.maximum + self.largest
        assert held <= window.charge
        assert window.granted - window.released <= window.charge
        assert self.send_window.window <= window.peak

    def teardown(self) -> None:
        if hasattr(self, "blocks"):
            self.run_dry()


class FixedMachine(PushMachine):
    """A window of constant size, and a sender of which nothing is known."""


class ElasticMachine(PushMachine):
    """A window that grows, and a sender that may announce anything."""

    elastic = True


class AnnouncedMachine(PushMachine):
    """A window that grows and shrinks, and a sender that announces before it waits."""

    elastic = True
    announced = True


class FixedAnnouncedMachine(PushMachine):
    """A constant window that grants seldom, because the sender announces before it waits."""

    announced = True


MACHINE = settings(max_examples=100, stateful_step_count=30, deadline=None)
for machine in (FixedMachine, ElasticMachine, AnnouncedMachine, FixedAnnouncedMachine):
    machine.TestCase.settings = MACHINE

TestFixed = FixedMachine.TestCase
TestElastic = ElasticMachine.TestCase
TestAnnounced = AnnouncedMachine.TestCase
TestFixedAnnounced = FixedAnnouncedMachine.TestCase
