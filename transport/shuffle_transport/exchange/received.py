"""What a channel's `receive` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt
from shuffle_transport.blocks import BlockBatch
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import Codec


@dataclass(frozen=True, slots=True)
class Control:
    """A message that the other end sent with `send_control`, in its place among the blocks."""

    message: bytes


@dataclass(frozen=True, slots=True)
class ReceivedBatch(BlockBatch):
    """The blocks of one `send`: their table, and a view of what arrived; nothing is decompressed or verified yet."""

    codec: Codec = field(kw_only=True)
    give_back: Callable[[int], None] = field(kw_only=True, repr=False)

    def raw(self) -> Iterator[Buffer]:
        """The blocks in order, each checked against its checksum and decompressed when its turn comes.

        :raises BlockCorrupt: a block is not what its sender had.
        """
        for row, payload in zip(self.rows.tolist(), self.payloads(), strict=True):
            partition, checksum, length, raw_length, _ = row
            if crc32c(payload) != checksum:
                raise BlockCorrupt(
                    f"a block of partition {partition} ({length} bytes) does not match its checksum {checksum:#010x}",
                    remedy="open the channel again and send it again",
                )
            yield self.codec.decompress(payload, raw_length)

    def release(self) -> None:
        """Give its credit back, once: as `consumed(len(payload))` on the channel."""
        self.give_back(len(self.payload))
