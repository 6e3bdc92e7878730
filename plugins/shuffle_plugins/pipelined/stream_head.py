"""The schema of Arrow blocks goes over a channel once, not with each block, where it is much of the block.

A block is a complete Arrow IPC stream, in the writer's queues and logs, in checkpoints, and for the reader: each can be
read by itself. Its first message, the head, is the schema, which for a wide table is larger than the rows of a small
block. Over a channel a block with the same head as one before is sent without it, behind a mark that no stream begins
with; the reader puts it back.
"""

from __future__ import annotations

from shuffle_api.buffer import Buffer
from shuffle_api.ipc_messages import END, PREFIX

WORTH = 16
"""A block of more than so many heads is sent whole: leaving the head out is a copy of the rest."""

MOST_HEAD = 1 << 20


def _head_of(payload: memoryview) -> bytes:
    """The first message, which has no body; empty: it does not begin with one, or that is too long to keep."""
    if payload.nbytes < len(END) or payload[:4] != END[:4]:
        return b""
    size = len(END) + PREFIX.unpack_from(payload)[1]
    return bytes(payload[:size]) if len(END) < size <= min(payload.nbytes, MOST_HEAD) else b""


class HeadRemover:
    """The sending end of one channel, block by block."""

    def __init__(self) -> None:
        self._head = b""

    def shortened(self, payload: Buffer) -> Buffer:
        """What goes over the channel."""
        view = memoryview(payload).cast("B")
        head = _head_of(view)
        if not head:
            return payload
        known, self._head = head == self._head, head
        if not known or view.nbytes > WORTH * len(head):
            return payload
        return b"".join((END, view[len(head) :]))


class HeadRestorer:
    """The receiving end, block by block in the order sent."""

    def __init__(self) -> None:
        self._head = b""

    def whole(self, payload: Buffer) -> Buffer:
        """The block as it was written."""
        view = memoryview(payload).cast("B")
        if self._head and view[: len(END)] == END:
            return b"".join((self._head, view[len(END) :]))
        self._head = _head_of(view) or self._head
        return payload
