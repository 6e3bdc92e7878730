"""What one pull has handed out: a value-like record without I/O.

A worker is a program on another machine, and between the two lies a network: its blocks are checked against the request
and against the registry's totals, so that neither a repeated nor a missing nor a foreign block gets through.
"""

from __future__ import annotations

from collections.abc import Sequence

from shuffle_api.errors import ProtocolMismatch
from shuffle_api.ids import MapAttempt
from shuffle_api.values import MapOutput


class FetchProgress:
    """The place in the sequence of blocks of `outputs`, of which the blocks of `partitions` are wanted.

    Blocks come output by output in this order (docs/protocol.md, Pull). With `whole`, `partitions` are all of the
    shuffle, and then the number of blocks of each output is known.
    """

    def __init__(self, outputs: Sequence[MapOutput], partitions: range, *, whole: bool, handed: int = 0) -> None:
        """`handed`: blocks of the first output that were handed out already, as they came from another worker."""
        self._outputs, self._partitions, self._whole = outputs, partitions, whole
        self._at = 0  # the output whose blocks come now
        self._seen = 0  # its blocks on the present stream
        self._handed = handed  # its blocks that have been handed out, on any stream

    @property
    def place(self) -> tuple[int, int]:
        """Outputs that are done, and blocks of the next one that have been handed out: where another stream goes on."""
        return self._at, self._handed

    def accept(self, output: MapAttempt, partition: int) -> bool:
        """Whether the next block of the stream is to be handed out; False for one that was, on an earlier stream.

        :raises ProtocolMismatch: it is none that was asked for, or comes out of turn.
        """
        if partition not in self._partitions:
            raise _contradiction(f"a block of partition {partition}, asked for were {self._partitions}")
        if output != self._outputs[self._at].output:
            self._leave_for(output)
        self._seen += 1
        if self._seen > self._outputs[self._at].totals.blocks:
            raise _contradiction(f"more blocks of {output} than the registry records")
        if self._seen <= self._handed:
            return False
        self._handed = self._seen
        return True

    def finish(self) -> None:
        """The stream has come to its end message.

        :raises ProtocolMismatch: blocks are missing.
        """
        self._check_complete(len(self._outputs))

    def _leave_for(self, output: MapAttempt) -> None:
        following = range(self._at + 1, len(self._outputs))
        found = next((i for i in following if self._outputs[i].output == output), None)
        if found is None:
            raise _contradiction(f"blocks of {output} out of turn, or not asked for")
        self._check_complete(found)
        self._at, self._seen, self._handed = found, 0, 0

    def _check_complete(self, end: int) -> None:
        """The outputs from the present one up to `end` have been served as far as can be known."""
        for at in range(self._at, end):
            output = self._outputs[at]
            seen, handed = (self._seen, self._handed) if at == self._at else (0, 0)
            expected = output.totals.blocks if self._whole else handed
            if seen < expected:
                raise _contradiction(f"{seen} blocks of {output.output}, expected were {expected}")


def _contradiction(what: str) -> ProtocolMismatch:
    return ProtocolMismatch(
        f"the worker served {what}", remedy="see the worker's log, and whether something else answers at its address"
    )
