"""Which blocks to send again after a reconnect, and which to skip: each block is kept once.

The blocks of an attempt are numbered from 0 in the order of sending. A stream begins with a block number
(`PutCommand.first_block`) and carries consecutive blocks; the receiver says how many it holds from 0 on
(`PutReply.blocks_held`). When a stream breaks, the sender goes back to the last number it heard and the
receiver skips what it has already. Values only, like :mod:`shuffle_transport.credits`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shuffle_api.errors import InvalidArgument, ProtocolMismatch


@dataclass(frozen=True, slots=True)
class SentBlocks:
    """The sender's place in its sequence of blocks.

    :ivar next: number of the block to send next on the present stream.
    :ivar acknowledged: the receiver holds all blocks below this.
    :ivar written: all blocks below this have been sent, on some stream.
    """

    next: int = 0
    acknowledged: int = 0
    written: int = 0

    @property
    def retained(self) -> range:
        """Blocks the sender must still keep. An acknowledged block that the present stream has yet to pass is one of
        them: numbers on a stream are consecutive, so it has to be sent although the receiver will skip it."""
        return range(min(self.acknowledged, self.next), self.written)

    def send(self, count: int = 1) -> SentBlocks:
        """The place after `count` blocks went out on the present stream."""
        after = self.next + count
        return replace(self, next=after, written=max(self.written, after))

    def acknowledge(self, held: int) -> SentBlocks:
        """The place after the receiver said it holds `held` blocks. Cumulative: a lower number is late and ignored.

        :raises ProtocolMismatch: the receiver claims blocks that were never sent.
        """
        if held > self.written:
            raise ProtocolMismatch(
                f"the receiver claims {held} blocks, {self.written} were sent",
                remedy="two senders may be writing the same attempt: give each its own attempt number",
            )
        return replace(self, acknowledged=max(self.acknowledged, held))

    def reconnect(self) -> SentBlocks:
        """The place at the start of a new stream, whose first block is `next`."""
        return replace(self, next=self.acknowledged)


@dataclass(frozen=True, slots=True)
class HeldBlocks:
    """The receiver's place in the sequence of blocks of one attempt.

    :ivar held: all blocks below this are held.
    :ivar next: number of the block that comes next on the present stream.
    """

    held: int = 0
    next: int = 0

    def open(self, first_block: int) -> HeldBlocks:
        """The place at the start of a stream that begins with block `first_block`.

        :raises InvalidArgument: blocks in between are missing (a receiver acknowledged them and has lost them since),
            or the number is negative.
        """
        if not 0 <= first_block <= self.held:
            raise InvalidArgument(
                f"the stream begins with block {first_block}, but only {self.held} are held",
                remedy="send again from the first block, or run the map again as a new attempt",
            )
        return replace(self, next=first_block)

    def receive(self, count: int) -> tuple[int, HeldBlocks]:
        """How many of the next `count` blocks to skip, because they are held, and the place after them."""
        after = self.next + count
        skip = min(count, max(0, self.held - self.next))
        return skip, HeldBlocks(max(self.held, after), after)
