"""Any schedule of sends, deliveries, consumption, idleness, breaks and reconnects, explored by hypothesis.

Two ends run over a simulated wire, step by step, both of them senders. What must hold whatever happens: items arrive
once and in order; what is sent and not consumed stays within the window, counted here anew; memory is reserved for
it; and wherever a schedule stops, delivering what is under way and consuming leads both to their end.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shuffle_api.errors import DeadlineExceeded
from shuffle_transport.channels import Control, ReceivedBatch
from shuffle_transport.channels.wire import MESSAGE_COST
from shuffle_transport.credits import INITIAL_CREDIT
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channels.helpers import MIB, number_of, numbered
from tests.shuffle_transport.channels.simulated import End, connect, disconnect

SIZES = st.one_of(
    st.sampled_from([8, 20_000, 70_000, MIB // 2 - 2000, MIB - 2000, MIB, 3 * MIB, 5 * MIB]), st.integers(8, 2 * MIB)
)
CONTROL = -1
SIDES = st.sampled_from([0, 1])


class Item(NamedTuple):
    """What is to be sent: a batch of `size` bytes, or a control message."""

    number: int
    size: int


class Side:
    """One end with what it is to send, and what it got."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.to_send: deque[Item] = deque()
        self.sent: list[Item] = []
        self.received: list[int] = []
        self.holding: deque[ReceivedBatch] = deque()
        self.finished = self.ended = False
        self.largest = 0

    def send(self) -> bool:
        """Send the next item, if there is credit."""
        item = self.to_send[0]
        try:
            if item.size == CONTROL:
                self.end.channel.send_control(str(item.number).encode(), 0)
            else:
                self.end.channel.send(*numbered(item.number, item.size), 0)
        except DeadlineExceeded:
            return False
        self.sent.append(self.to_send.popleft())
        return True

    def receive(self) -> bool:
        """Take the next item, if there is one."""
        if self.ended or not self.end.session.receiver.ready():
            return False
        item = self.end.channel.receive(0)
        if item is None:
            self.ended = True
        elif isinstance(item, Control):
            self.received.append(int(item.message))
        else:
            self.received.append(number_of(item))
            self.holding.append(item)
        return True


class ChannelMachine(RuleBasedStateMachine):
    """Two ends; `resume` says whether the stream may break."""

    resume = True

    @initialize(windows=st.tuples(*[st.sampled_from([MIB, 2 * MIB, 16 * MIB])] * 2))
    def begin(self, windows: tuple[int, int]) -> None:
        self.pool = BufferPool(1 << 40)
        near = End("near", self.pool, window=windows[0], resume=self.resume, accepting=False)
        far = End("far", self.pool, window=windows[1], resume=self.resume, accepting=True)
        self.sides = Side(near), Side(far)
        self.windows = windows
        self.number = 0
        self.connected = True
        connect(near, far)

    @precondition(lambda self: self.number < 60)
    @rule(side=SIDES, sizes=st.lists(SIZES, min_size=1, max_size=4))
    def write(self, side: int, sizes: list[int]) -> None:
        for size in sizes:
            self.add(side, size)

    @rule(side=SIDES)
    def write_control(self, side: int) -> None:
        self.add(side, CONTROL)

    def add(self, side: int, size: int) -> None:
        if not self.sides[side].finished:
            self.sides[side].to_send.append(Item(self.number, size))
            self.number += 1

    @rule(side=SIDES, count=st.integers(1, 5))
    def send(self, side: int, count: int) -> None:
        while count and self.sides[side].to_send and not self.sides[side].finished and self.sides[side].send():
            count -= 1

    @rule(side=SIDES)
    def finish(self, side: int) -> None:
        one = self.sides[side]
        if not one.to_send and not one.finished and self.number > 5:
            one.finished = True
            one.end.channel.half_close(1)

    @rule(side=SIDES, count=st.integers(1, 8))
    def deliver(self, side: int, count: int) -> None:
        end = self.sides[side].end
        while count and end.wire.messages:
            end.deliver()
            count -= 1

    @rule(side=SIDES)
    def writer_thread(self, side: int) -> None:
        self.sides[side].end.writes.run()

    @rule(side=SIDES)
    def idle(self, side: int) -> None:
        self.sides[side].end.session.ping(0)

    @rule(side=SIDES, count=st.integers(1, 5))
    def receive(self, side: int, count: int) -> None:
        while count and self.sides[side].receive():
            count -= 1

    @rule(side=SIDES, count=st.integers(1, 5))
    def consume(self, side: int, count: int) -> None:
        holding = self.sides[side].holding
        while count and holding:
            holding.popleft().release()
            count -= 1

    @precondition(lambda self: self.resume and self.connected)
    @rule()
    def disconnect(self) -> None:
        disconnect(self.sides[0].end, self.sides[1].end)
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        connect(self.sides[0].end, self.sides[1].end)
        self.connected = True

    @invariant()
    def items_arrive_once_and_in_order(self) -> None:
        for one, other in (self.sides, self.sides[::-1]):
            assert other.received == [item.number for item in one.sent[: len(other.received)]]

    @invariant()
    def what_is_not_consumed_stays_within_the_window(self) -> None:
        for one, other, window in ((*self.sides, self.windows[1]), (*self.sides[::-1], self.windows[0])):
            sent = [item.size for item in one.sent if item.size != CONTROL]
            got = sum(1 for number in other.received if number in {i.number for i in one.sent if i.size != CONTROL})
            consumed = got - len(other.holding)
            outstanding = sent[consumed:]
            # A batch that is larger than the window goes alone: when the window was whole, so nothing beside it.
            bound = max([window, *(size + 2 * MESSAGE_COST + INITIAL_CREDIT for size in outstanding)])
            assert sum(outstanding) <= bound + 64 * 1024

    @invariant()
    def what_is_held_is_reserved(self) -> None:
        held = sum(side.end.session.account.statistics().held for side in self.sides)
        assert self.pool.statistics().used >= held - 2 * 64 * 1024

    @invariant()
    def without_errors(self) -> None:
        for side in self.sides:
            assert side.end.session._refusal is None

    def teardown(self) -> None:
        if not hasattr(self, "sides"):
            return
        try:
            self.run_to_the_end()
        finally:
            for side in self.sides:
                side.end.session.close()
        assert self.pool.statistics().used == 0

    def run_to_the_end(self) -> None:
        if not self.connected:
            self.connect()
        steps = 0
        while any([self.step(side) for side in self.sides]):  # noqa: C419 - both take a step
            steps += 1
            assert steps < 10_000, "it goes on for ever"
        for one, other in (self.sides, self.sides[::-1]):
            assert not one.to_send, "a sender waits for ever"
            assert other.received == [item.number for item in one.sent]
            assert other.ended
            assert one.end.session.sender.kept == 0

    def step(self, side: Side) -> bool:
        """All that this side's threads would do now; whether there was anything."""
        did = bool(side.end.wire.messages or side.end.writes.waiting or side.holding)
        while side.end.wire.messages:
            side.end.deliver()
        side.end.writes.run()
        while side.receive():
            did = True
        while side.holding:
            side.holding.popleft().release()
        while side.to_send and side.send():
            did = True
        if not side.to_send and not side.finished:
            side.finished = did = True
            side.end.channel.half_close(1)
        return did


class UnbrokenMachine(ChannelMachine):
    resume = False


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestUnbrokenMachine = UnbrokenMachine.TestCase
TestUnbrokenMachine.settings = settings(max_examples=30, stateful_step_count=60, deadline=None)
