"""Values that cross the boundaries between threads, processes and packages. All frozen, all picklable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from shuffle_api.address import Address
from shuffle_api.errors import InvalidArgument, MapOutputNotWritten
from shuffle_api.ids import MapAttempt, ShuffleId

CONTENTS = ("records", "opaque", "arrow", "spark")
"""What the payloads of a shuffle are: framed records (see `shuffle_api.records`), bytes that only the
engine understands, Arrow IPC messages, Spark's serialized rows."""

MAX_REPLICAS = 2

MAX_COUNT = 2**31 - 1
"""Most partitions or maps of a shuffle: they travel as int32."""

MAX_LABELS = 8
HOST = "host"
"""The label that every worker has: the name of its machine, as it advertises it."""

_WORKER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}=[A-Za-z0-9._-]{1,64}")


def check_label(label: str) -> str:
    """Return `label` if it is KEY=VALUE, each 1 to 64 characters of [A-Za-z0-9._-], and the key is not `host`.

    :raises InvalidArgument: it is not.
    """
    if not _LABEL.fullmatch(label) or label.startswith(f"{HOST}="):
        raise InvalidArgument(
            f"label {label[:200]!r} is not valid",
            remedy="use KEY=VALUE, each 1 to 64 characters of A-Z a-z 0-9 . _ -; the key `host` is taken",
        )
    return label


def parse_labels(text: str) -> tuple[str, ...]:
    """The labels of `KEY=VALUE,KEY=VALUE`, ascending.

    :raises InvalidArgument: one is not valid, two have one key, or there are more than 8.
    """
    labels = tuple(sorted(check_label(each.strip()) for each in text.split(",") if each.strip()))
    keys = {label.partition("=")[0] for label in labels}
    if len(keys) < len(labels) or len(labels) > MAX_LABELS:
        raise InvalidArgument(
            f"{len(labels)} labels with {len(keys)} keys: {', '.join(labels)[:200]}",
            remedy=f"give a worker at most {MAX_LABELS} labels, each with a key of its own",
        )
    return labels


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the blocks of a stream or of a map output.

    `bytes` are stored (compressed) payload bytes, `raw_bytes` those before compression; `digest` is the
    crc32c of the block table in the order in which the blocks were sent (docs/protocol.md).
    """

    blocks: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    records: int = 0
    digest: int = 0

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """Blocks, bytes, raw bytes, records and digest, of which it can be made again."""
        return self.blocks, self.bytes, self.raw_bytes, self.records, self.digest


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker and where clients reach its data endpoint. `id` outlives restarts of the worker, `incarnation` rises
    with each: requests from an older one are refused. 0: a worker in the master's own process. `labels` are KEY=VALUE.

    :raises InvalidArgument: the id is not 1-64 characters of [A-Za-z0-9._-], or a label is not valid.
    """

    id: str
    host: str
    port: int
    free_bytes: int = 0
    incarnation: int = 0
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for label in self.labels:
            check_label(label)
        if not _WORKER.fullmatch(self.id):
            raise InvalidArgument(
                f"worker id {self.id!r} is not valid", remedy="use 1 to 64 characters of A-Z a-z 0-9 . _ -"
            )

    @property
    def address(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        return str(Address(self.host, self.port))

    def label(self, key: str) -> str:
        """The value of a label, empty when the worker has none of this key; of `host` the name of its machine."""
        if key == HOST:
            return self.host
        return next((label[len(key) + 1 :] for label in self.labels if label.startswith(f"{key}=")), "")


@dataclass(frozen=True, slots=True)
class MapOutput:
    """A committed map output: which attempt won, which worker holds it (and which others do too), how much it is."""

    output: MapAttempt
    worker: str
    totals: Totals
    copies: tuple[str, ...] = ()

    @property
    def workers(self) -> tuple[str, ...]:
        """All workers that hold it, the one to ask first in front."""
        return (self.worker, *self.copies)

    def at(self, *workers: str) -> MapOutput:
        """The same output, held by `workers`."""
        return MapOutput(self.output, workers[0], self.totals, workers[1:])


@dataclass(frozen=True, slots=True)
class LostMapOutput:
    """A committed map output is gone: which, at which worker it lay, and why. Its map has to run again.

    Of a worker that is gone too, `host` and `port` may be unknown: empty and 0.
    """

    output: MapAttempt
    worker: WorkerInfo
    reason: str


@dataclass(frozen=True, slots=True)
class ShuffleSpec:
    """What a shuffle is: `maps` tasks write, `partitions` are read, `replicas` workers hold each map output.

    The `check_` methods are the argument checks every plugin needs, with the same words everywhere.

    :raises InvalidArgument: partitions < 1, maps < 0, either above 2**31 - 1, an unknown content, or replicas other
        than 1 and 2.
    """

    id: ShuffleId
    partitions: int
    maps: int
    codec: str = "lz4"
    content: str = "records"
    replicas: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= MAX_COUNT:
            raise InvalidArgument(f"partitions {self.partitions} is not in [1, {MAX_COUNT}]", shuffle=self.id)
        if not 0 <= self.maps <= MAX_COUNT:
            raise InvalidArgument(f"maps {self.maps} is not in [0, {MAX_COUNT}]", shuffle=self.id)
        if self.content not in CONTENTS:
            raise InvalidArgument(
                f"content {self.content!r} is not known", remedy=f"use one of: {', '.join(CONTENTS)}", shuffle=self.id
            )
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise InvalidArgument(f"replicas {self.replicas} is not in [1, {MAX_REPLICAS}]", shuffle=self.id)

    def check_partition(self, partition: int) -> None:
        """:raises InvalidArgument: `partition` is not in [0, partitions)."""
        if not 0 <= partition < self.partitions:
            raise InvalidArgument(f"partition {partition} is not in [0, {self.partitions})", shuffle=self.id)

    def check_map(self, map: int) -> None:
        """:raises InvalidArgument: `map` is not in [0, maps)."""
        if not 0 <= map < self.maps:
            raise InvalidArgument(f"map {map} is not in [0, {self.maps})", shuffle=self.id)

    def check_ranges(self, partitions: range, maps: range | None) -> range:
        """Check what a reader asks for; return the range of maps, all of them for None.

        :raises InvalidArgument: a range has a step other than 1 or leaves the shuffle's bounds.
        """
        maps = range(self.maps) if maps is None else maps
        for what, wanted, count in (("partition", partitions, self.partitions), ("map", maps, self.maps)):
            if wanted.step != 1 or (len(wanted) and not 0 <= wanted.start <= wanted.stop <= count):
                raise InvalidArgument(f"{what} range {wanted} is not within [0, {count}) with step 1", shuffle=self.id)
        return maps

    def check_written(self, maps: range, written: Iterable[int]) -> None:
        """:raises MapOutputNotWritten: `maps` are not all among the `written`; the message names those missing."""
        missing = set(maps).difference(written)
        if missing:
            raise MapOutputNotWritten(f"maps not committed yet: {name_numbers(missing)}", shuffle=self.id)


@dataclass(frozen=True, slots=True)
class DeclaredShuffleSpec(ShuffleSpec):
    """A shuffle whose driver declared the schema of its batches: `schema`, serialized.

    It goes with the handle from task to task; services have the rest only.
    """

    schema: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ShuffleHandle:
    """What a driver hands to its tasks, by pickling: enough to open a writer or a reader anywhere.

    `plugin` is the name to load, `endpoint` whatever that plugin needs to find the shuffle (an address).
    """

    plugin: str
    spec: ShuffleSpec
    endpoint: str

    def with_schema(self, schema: Any) -> ShuffleHandle:
        """The handle of the same shuffle, all of whose batches have this `pyarrow.Schema`.

        Writers and readers that are opened with it refuse others, and a partition without rows has it.

        :raises InvalidArgument: the shuffle's content is not `arrow`.
        """
        if self.spec.content != "arrow":
            raise InvalidArgument(
                f"a shuffle of content {self.spec.content!r} has no schema",
                remedy="open the driver's plugin with the option content=arrow",
                shuffle=self.spec.id,
            )
        spec = {each.name: getattr(self.spec, each.name) for each in fields(ShuffleSpec)}
        declared = DeclaredShuffleSpec(**spec, schema=bytes(memoryview(schema.serialize())))
        return replace(self, spec=declared)


@dataclass(frozen=True, slots=True)
class PartitionMode:
    """The guarantees of a shuffle's data for readers and writers. A value, not a class of plugin.

    `reconsumable`: a partition may be read more than once.
    `bounded`: the data that the producer may hold unread is limited, so that `write` waits for slow readers.
    `persistent`: the data outlives the process that wrote it.
    `start`: a reader may begin while the writer runs, or only after the commit.
    `release`: what lets the data go.

    The presets are Flink's result partition types PIPELINED_BOUNDED, BLOCKING and HYBRID_FULL in these terms
    (`org.apache.flink.runtime.io.network.partition.ResultPartitionType`).

    :raises InvalidArgument: the fields contradict each other.
    """

    reconsumable: bool
    bounded: bool
    persistent: bool
    start: Literal["while_writing", "after_commit"]
    release: Literal["when_consumed", "when_unregistered"]

    def __post_init__(self) -> None:
        if self.reconsumable and self.release == "when_consumed":
            raise InvalidArgument("a mode that releases data when consumed cannot be reconsumable")
        if self.bounded and self.start == "after_commit":
            raise InvalidArgument("a bounded mode whose readers start after the commit would block its writer for ever")


PIPELINED = PartitionMode(
    reconsumable=False, bounded=True, persistent=False, start="while_writing", release="when_consumed"
)
BLOCKING = PartitionMode(
    reconsumable=True, bounded=False, persistent=True, start="after_commit", release="when_unregistered"
)
HYBRID = PartitionMode(
    reconsumable=True, bounded=False, persistent=True, start="while_writing", release="when_unregistered"
)


def name_numbers(numbers: Iterable[int], most: int = 20) -> str:
    """Numbers for an error message: ascending, neighbours joined (`0-3, 7`), cut after `most` groups."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number <= groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in groups[:most]]
    return ", ".join(shown) + (f" and {len(groups) - most} more groups" if len(groups) > most else "")
