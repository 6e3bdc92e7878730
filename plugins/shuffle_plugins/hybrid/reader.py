"""The reader: live blocks first, the others from the store, and none twice.

The store is the truth: which attempt has won a map, and what it wrote. The driver's directory only says where somebody
writes just now. So a reader that finds neither writers nor the directory still reads all, after the commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.clock import LOOK_SHARE, ServingClock
from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.hybrid.input_channel import HybridInputChannel
from shuffle_plugins.hybrid.input_gate import HybridInputGate
from shuffle_plugins.hybrid.live_receiver import LiveReceiver
from shuffle_plugins.hybrid.statistics import HybridReaderStatistics
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.producer_registry import ProducerLocation, Watcher
from shuffle_plugins.pipelined.source import Source
from shuffle_plugins.remote.blocks_reader import BlocksReader
from shuffle_plugins.remote.locate import lost_error
from shuffle_plugins.remote.reader import RemoteReader

log = logging.getLogger(__name__)

FIRST_LOOK, LONGEST_LOOK = 0.05, 2.0
"""Seconds between looks at the store for maps that nobody says anything of."""

LONGEST_WAIT = 60.0  # seconds; news end a wait

Found: TypeAlias = tuple[int, MapAttempt, Buffer, int]


class LiveProducers(Protocol):
    """The writers of the shuffle that are at work, as the driver lists them."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with the present state and every change. Raises ShuffleError: the driver is unreachable."""

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling it."""

    def connect(self, location: ProducerLocation) -> Source:
        """Its blocks, for the partitions of one reader. Raises ShuffleError."""


class HybridReader(BlocksReader):
    """Partitions of a range of maps, while they are written and after. It is read once.

    :param store: the reader of the same ranges there.
    :param timeout: seconds for a writer to come of a map that has none.
    """

    def __init__(
        self,
        spec: ShuffleSpec,
        partitions: range,
        maps: range,
        store: RemoteReader,
        live: LiveProducers,
        timeout: float,
    ) -> None:
        super().__init__(spec)
        self._store, self._producers, self._timeout = store, live, timeout
        whole = partitions == range(spec.partitions)
        self._gate = HybridInputGate(spec.id, maps if len(partitions) else range(0), whole=whole)
        self._receivers: list[LiveReceiver] = []
        self._watching = False
        self._look_at, self._pause = 0.0, FIRST_LOOK
        self._clock = ServingClock(max(LONGEST_LOOK, LOOK_SHARE * timeout))  # of the time in which a writer may come
        self._live, self._stored = [0, 0], [0, 0]  # blocks and bytes
        self._continued = 0
        self._opened_at = time.monotonic()

    def read_blocks(self) -> Iterator[Found]:
        """See `SupportsReadBlocks`.

        :raises StreamBroken: an attempt of which blocks were handed out has failed, or another has won its map.
        :raises DeadlineExceeded: nobody writes a map for longer than option `timeout`.
        :raises ShuffleError: as `ShuffleReader.__iter__`.
        """
        self._check_open()
        self._begin_reading(self._spec.id)
        self._look_up([])
        self._look_at = time.monotonic() + self._pause
        while True:
            yield from self._handed_live()
            if self._gate.done:
                return
            stored = self._gate.stored()
            if stored:
                yield from self._from_store(stored)
            else:
                self._advance()

    def statistics(self) -> HybridReaderStatistics:
        """Where the blocks came from."""
        return HybridReaderStatistics(
            open_seconds=time.monotonic() - self._opened_at,
            live_blocks=self._live[0],
            live_bytes=self._live[1],
            stored_blocks=self._stored[0],
            stored_bytes=self._stored[1],
            held_bytes=self._gate.held_bytes,
            continued=self._continued,
            switched=self._gate.switched,
            waited_seconds=self._gate.waited,
            inputs=tuple(self._gate.progress()),
        )

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._gate.fail(InvalidArgument("the reader is closed", remedy="open a new one", shuffle=self._spec.id))
        receivers = list(self._receivers)
        steps: list[Callable[[], object]] = [receiver.stop for receiver in receivers]
        steps += [receiver.join for receiver in receivers]
        steps.append(self._store.close)
        if self._watching:
            steps.append(lambda: self._producers.unwatch(self._gate.on_event))
        close_all(steps)

    # ------------------------------------------------------------------------------------------ blocks

    def _handed_live(self) -> Iterator[Found]:
        """What is here of live maps."""
        while (found := self._gate.take()) is not None:
            attempt, (block, stored, source) = found
            self._live[0] += 1
            self._live[1] += block.size
            self._count(attempt.map, block.partition, block.records, block.size)
            yield block.partition, attempt, block.payload, block.records
            try:
                source.release(stored)
            except ShuffleError:
                pass  # that source is closed: nobody counts any more

    def _from_store(self, inputs: list[HybridInputChannel]) -> Iterator[Found]:
        """The rest of these maps, and what comes live meanwhile."""
        outputs = [input.output for input in inputs if input.output is not None]
        after = {output.output: dict(self._gate.inputs[output.output.map].handed) for output in outputs}
        self._continued += sum(bool(handed) for handed in after.values())
        for found in self._store.blocks_of(outputs, after):
            yield from self._handed_live()
            size = memoryview(found[2]).nbytes
            self._stored[0] += 1
            self._stored[1] += size
            self._count(found[1].map, found[0], found[3], size)
            yield found
        for input in inputs:
            self._gate.read(input)

    def _count(self, map: int, partition: int, records: int, size: int) -> None:
        counts = self._gate.inputs[map].read[partition]
        counts[0] += records
        counts[1] += size

    # ---------------------------------------------------------------------------------- what is to be read

    def _advance(self) -> None:
        """There is nothing to hand out: look what has become of the maps, or wait."""
        now = time.monotonic()
        unsettled = self._gate.unsettled()
        if unsettled and now >= self._look_at:
            self._look_up(unsettled)
            self._look_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_LOOK)
            return
        self._join(unsettled, now)
        times = [
            input.join.earliest
            for input in unsettled
            if isinstance(input.place, ProducerLocation) and input.receiver is None
        ]
        until = min([now + LONGEST_WAIT, *([self._look_at] if unsettled else []), *times])
        if self._gate.wait(until - now):
            self._look_at, self._pause = 0.0, FIRST_LOOK

    def _look_up(self, inputs: list[HybridInputChannel]) -> None:
        """Ask the store about these maps; at first, without any, about all.

        :raises StreamBroken: an attempt that was begun with has failed or lost.
        :raises MapOutputLost: a map was committed and is gone, and nobody writes it again.
        """
        # Who is known to be gone before the store is asked has not committed later.
        gone = [(input, why) for input in inputs if (why := input.writer_lost())]
        numbers = [input.map for input in inputs] or list(self._gate.inputs)
        maps = range(min(numbers), max(numbers) + 1) if numbers else range(0)
        located = self._store.located(maps)
        for output in located.outputs:
            receiver = self._gate.settle(output)
            if receiver is not None:
                receiver.stop()
        for input, why in gone:
            if input.output is None and not input.done:
                raise input.lost(self._spec.id, why)
        left = self._gate.unsettled()
        if left and not self._watching:
            self._watch()
        self._check_lost(left, {output.output.map: output for output in located.lost})

    def _check_lost(self, inputs: list[HybridInputChannel], lost: dict[int, MapOutput]) -> None:
        gone = [lost[input.map] for input in inputs if input.map in lost and not _again(input, lost[input.map])]
        if gone:
            raise lost_error(self._spec, gone)

    def _watch(self) -> None:
        self._watching = True
        try:
            self._producers.watch(self._gate.on_event)
        except ShuffleError as error:
            log.warning("%s is read from the store alone, the driver cannot be asked: %s", self._spec.id, error)

    def _join(self, inputs: list[HybridInputChannel], now: float) -> None:
        """Connect to writers of maps that have one.

        :raises DeadlineExceeded: a map has had none for too long.
        """
        for input in inputs:
            if input.receiver is not None or input.totals is not None:
                continue
            place = input.place
            if isinstance(place, ProducerLocation):
                input.alone_since = None
                if now >= input.join.earliest and not (input.began and place.output != input.reading):
                    receiver = LiveReceiver(place, self._gate, self._producers.connect)
                    with self._gate.changed:  # `close` stops all there are, and none begins after it
                        self._gate.begin(input, receiver)
                        self._receivers.append(receiver)
                    receiver.start()
            elif input.alone_since is None:
                input.alone_since = self._clock()
            elif self._clock() - input.alone_since > self._timeout:
                why = f": {input.error.message}" if input.error is not None else ""
                raise DeadlineExceeded(
                    f"nobody has written map {input.map} for {self._timeout:g} s{why}",
                    remedy="start a writer of it, or raise option 'timeout'",
                    shuffle=self._spec.id,
                )


def _again(input: HybridInputChannel, lost: MapOutput) -> bool:
    """A later attempt of the map is being written."""
    return isinstance(input.place, ProducerLocation) and input.place.output.attempt > lost.output.attempt
