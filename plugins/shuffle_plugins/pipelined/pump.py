"""The producer's end of a reader's channel: the subpartition's entries go out, acknowledgements come in.

One thread does both: it looks for acknowledgements whenever it has sent something, and while nothing comes.
"""

from __future__ import annotations

import numpy as np

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StreamBroken
from shuffle_api.streaming import EndOfPartition
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.stream_head import HeadRemover
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView
from shuffle_transport.blocks import back_to_back
from shuffle_transport.channels import BlockChannel, Control
from shuffle_transport.checksum import BLOCK_ROW

BATCH_BYTES = 512 << 10
"""Blocks that go out together: as many as wait, up to so much. A reader's credit comes back in such steps."""

_LOOK = 0.05  # seconds between looks for acknowledgements while nothing is written
_URGENT_WITHIN = 5.0


def pump(view: SubpartitionView, channel: BlockChannel, timeout: float, *, heads: bool = False) -> None:
    """Serve one reader until it has the end and says so, or leaves.

    :param heads: the reader puts back the heads of Arrow blocks (stream_head.py).
    :raises ShuffleError: why that ended early; the channel's other end gets it.
    """
    finished = False
    try:
        position = view.position()
        remover = HeadRemover() if heads and view.output.spec.content == "arrow" else None
        said = {"heads": True} if remover is not None else {}
        channel.send_control(wire.encode(hello=wire.position_fields(position), **said), timeout)

        def urgent(mark: SequencedMarker) -> None:
            channel.send_control(wire.encode_marks([mark], dict), _URGENT_WITHIN)

        view.urgent = urgent
        ended = False
        while not ended:
            blocks, marks = view.take(BATCH_BYTES, _LOOK)
            if blocks:
                _send(view, channel, blocks, timeout, remover)
            if marks:
                channel.send_control(wire.encode_marks(marks, view.numbers), timeout)
                ended = isinstance(marks[-1].marker, EndOfPartition)
            while not ended and channel.ready:  # a reader that has the end may leave at once
                if not _receive(view, channel, 0.0):
                    raise StreamBroken("the reader left before the end")
        _drain(view, channel)
        finished = True
    finally:
        view.close(finished=finished)


def _drain(view: SubpartitionView, channel: BlockChannel) -> None:
    """After the end: until the reader leaves, however long that takes. (A dead one breaks the channel.)"""
    with view.output.changed:
        view.settle()
    while True:
        try:
            if not _receive(view, channel, _LOOK):
                return
        except DeadlineExceeded:
            view.check()


def _send(
    view: SubpartitionView,
    channel: BlockChannel,
    blocks: list[SequencedBlock],
    timeout: float,
    remover: HeadRemover | None,
) -> None:
    """Waits for credit for as long as the output lives: how long a writer may wait is the writer's business."""
    if remover is not None:
        blocks = [_shortened(block, remover) for block in blocks]
    rows = np.empty(len(blocks), BLOCK_ROW)
    for i, block in enumerate(blocks):
        rows[i] = (block.partition, block.crc32c, block.size, block.size, block.records)
    payload = back_to_back([block.payload for block in blocks])
    while True:
        try:
            channel.send(rows, payload, timeout, credit_timeout=_LOOK)
            return
        except DeadlineExceeded:
            view.check()
            while channel.ready:
                _receive(view, channel, 0.0)


def _shortened(block: SequencedBlock, remover: HeadRemover) -> SequencedBlock:
    payload = remover.shortened(block.payload)
    if payload is block.payload:
        return block
    return block._replace(payload=payload, size=memoryview(payload).nbytes, checksum=None)


def _receive(view: SubpartitionView, channel: BlockChannel, timeout: float) -> bool:
    """Take one message of the reader's; False: it has left, as it should."""
    item = channel.receive(timeout)
    if item is None:
        return False
    if not isinstance(item, Control):
        raise InvalidArgument("blocks from a reader")
    fields = wire.decode(item.message)
    position = wire.parse_position(fields.get("ack"))
    if position is not None:
        view.acknowledge(position)
    if "window" in fields:
        view.resize(wire.checked(lambda: int(fields["window"]), fields))
    return True
