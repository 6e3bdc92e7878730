"""What a channel's `receive` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt
from shuffle_transport.blocks import BlockBatch
from shuffle_transport.channels.wire import BatchMeta, check_table
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.codecs import Codec


@dataclass(frozen=True, slots=True)
class Control:
    """A message that the other end sent with `send_control`, in its place among the blocks."""

    message: bytes


class ReceivedBatch:
    """The blocks of one `send`: their table, and a view of what arrived; nothing is decompressed or verified yet.

    :ivar payload: the blocks' bytes back to back, as they were stored.
    :ivar meta: how many blocks and bytes there are.
    """

    __slots__ = ("_codec", "_give_back", "_rows", "meta", "payload")

    def __init__(self, payload: memoryview, meta: BatchMeta, codec: Codec, give_back: Callable[[int], None]) -> None:
        self.payload, self.meta = payload, meta
        self._codec, self._give_back = codec, give_back
        self._rows: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """The block table, dtype BLOCK_ROW, shape [n].

        :raises InvalidArgument: it is malformed, or contradicts the payload. (Looked at here, or at the next hundredth
            batch or the end, whatever is first: then the channel fails.)
        """
        if self._rows is None:
            check_table(self.meta.table, self.meta.size)
            self._rows = np.frombuffer(self.meta.table, BLOCK_ROW)
        return self._rows

    def payloads(self) -> Iterator[memoryview]:
        """Views of the single payloads, in order, as they were stored. Raises as `rows`."""
        return BlockBatch(self.rows, self.payload).payloads()

    def raw(self) -> Iterator[Buffer]:
        """The blocks in order, each checked against its checksum and decompressed when its turn comes.

        :raises BlockCorrupt: a block is not what its sender had.
        :raises InvalidArgument: as `rows`.
        """
        for row, payload in zip(self.rows.tolist(), self.payloads(), strict=True):
            partition, checksum, length, raw_length, _ = row
            if crc32c(payload) != checksum:
                raise BlockCorrupt(
                    f"a block of partition {partition} ({length} bytes) does not match its checksum {checksum:#010x}",
                    remedy="open the channel again and send it again",
                )
            yield self._codec.decompress(payload, raw_length)

    def release(self) -> None:
        """Give its credit back, once: as `consumed(len(payload))` on the channel."""
        self._give_back(len(self.payload))
