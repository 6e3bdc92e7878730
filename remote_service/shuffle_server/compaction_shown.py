"""What became of the blocks of a shuffle that are small for their disks, in words for people."""

from __future__ import annotations

from collections import defaultdict

from shuffle_transport.proto import flight_shuffle_pb2 as pb

Key = tuple[str, int, int]


class CompactionShown:
    """What the workers of a status have decided, by shuffle."""

    def __init__(self, reply: pb.StatusReply) -> None:
        self._seek = max((disk.seek_bytes for state in reply.states for disk in state.disks), default=0)
        self._told: defaultdict[Key, list[tuple[pb.ShuffleCompaction, bool]]] = defaultdict(list)
        for state in reply.states:
            for each in state.compactions:
                self._told[_key(each.shuffle)].append((each, state.disk_bound))

    def of(self, shuffle: pb.ShuffleStatus) -> str:
        """The decision about one shuffle, and why."""
        told = self._told.get(_key(shuffle.shuffle), [])
        shown = [
            f"{what} {count}"
            for what, count in (
                ("compacted", sum(each.compacted for each, _ in told)),
                ("large blocks", sum(each.large_blocks for each, _ in told)),
                ("failed", sum(each.failed for each, _ in told)),
            )
            if count
        ]
        for why, bound in (("in memory", False), ("waiting", True)):
            if any(each.pending_bytes for each, disk_bound in told if disk_bound == bound):
                shown.append(why)
        return ", ".join(shown) or self._by_size(shuffle)

    def _by_size(self, shuffle: pb.ShuffleStatus) -> str:
        totals = shuffle.totals
        if not self._seek or not totals.blocks:
            return "-"
        return "large blocks" if totals.bytes >= totals.blocks * self._seek else "-"


def _key(shuffle: pb.ShuffleKey) -> Key:
    return shuffle.app, shuffle.shuffle, shuffle.generation
