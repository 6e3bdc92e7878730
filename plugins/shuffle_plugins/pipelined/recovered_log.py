"""What a writer that goes on from logs on disk finds in them."""

from __future__ import annotations

from pathlib import Path

from shuffle_api.streaming import EndOfPartition, Position
from shuffle_plugins.pipelined.entries import Entry, SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.log_entries import Base, Stored
from shuffle_plugins.pipelined.log_files import Gap, Row, Rows, Segment, read_logs
from shuffle_plugins.pipelined.payload_file import PayloadRange


class RecoveredLog:
    """What logs on disk still have of what was written before `begin`; no gap, and nothing of others' in it.

    :ivar entries: blocks and markers in order; their `order` is below zero.
    :ivar start, markers: the lowest numbers that are there.
    :ivar places: where blocks are, by partition and number.
    :ivar damage: why there is no more; "" if nothing is missing but what was deleted.
    """

    def __init__(self, begin: Position) -> None:
        self.entries: list[Entry] = []
        self.start, self.markers = dict(begin.blocks), begin.markers
        self.segments: list[Segment] = []
        self.places: dict[tuple[int, int], PayloadRange] = {}
        self.damage = ""

    def read(self, parent: str) -> None:
        """Take in what the log in the directory `parent` has, and those that it goes on from."""
        found = read_logs(Path(parent), self.segments)
        base = Base(parent, Position(dict(self.start), self.markers))
        rows = [row for row in found if isinstance(row, Gap) or base.follows(row.entry)]
        before = _before_gaps(rows)
        blocked: set[int] = set()
        for row in reversed(rows):
            if isinstance(row, Gap):
                if self._misses(row, before.pop(), blocked):
                    break
            else:
                row.segment.contains(row.entry)
                self._take(row, row.entry, blocked)
        count = len(self.entries)
        self.entries = [entry._replace(order=i - count) for i, entry in enumerate(reversed(self.entries))]

    def _misses(self, gap: Gap, before: Position, blocked: set[int]) -> bool:
        """A marker is missing in the gap: as nobody can tell what came before it, nothing older is of use."""
        markers = self.markers > before.markers
        blocks = any(n > before.blocks.get(p, 0) for p, n in self.start.items() if p not in blocked)
        if markers or blocks:
            self.damage = self.damage or gap.why
        return markers

    def _take(self, row: Row, entry: Stored | SequencedMarker, blocked: set[int]) -> None:
        if isinstance(entry, SequencedMarker):
            self._mark(entry)
        elif entry.number == self.start[entry.partition] - 1 and entry.partition not in blocked:
            self._block(row, entry)
        else:
            blocked.add(entry.partition)

    def _mark(self, mark: SequencedMarker) -> None:
        if mark.number == self.markers - 1:
            self.markers -= 1
            if not isinstance(mark.marker, EndOfPartition):  # whoever goes on says that again
                self.entries.append(mark)

    def _block(self, row: Row, entry: Stored) -> None:
        self.start[entry.partition] -= 1
        place = self.places[entry.partition, entry.number] = PayloadRange(row.segment.file, row.offset + entry.skip)
        self.entries.append(
            SequencedBlock(0, entry.partition, entry.number, entry.records, b"", entry.size, entry.checksum, place)
        )


def _before_gaps(rows: Rows) -> list[Position]:
    """For each gap, the numbers that come next after what is before it."""
    positions, blocks, markers = list[Position](), dict[int, int](), 0
    for row in rows:
        if isinstance(row, Gap):
            positions.append(Position(dict(blocks), markers))
        elif isinstance(row.entry, SequencedMarker):
            markers = row.entry.number + 1
        else:
            blocks[row.entry.partition] = row.entry.number + 1
    return positions
