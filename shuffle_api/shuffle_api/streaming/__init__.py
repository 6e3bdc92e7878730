"""What streaming shuffles share: markers among the data, guarantees, and the arithmetic of barriers and watermarks.

All of it is values and state machines without I/O, lock or clock. The `pipelined` plugin is built on it
(docs/pipelined.md).
"""

from shuffle_api.streaming.alignment import Aligner, Step
from shuffle_api.streaming.guarantees import Alignment, Guarantee
from shuffle_api.streaming.key_groups import key_group, key_group_range, owner_of
from shuffle_api.streaming.markers import Barrier, Captured, EndOfPartition, Idle, Marker, Watermark
from shuffle_api.streaming.state import InFlight, Position, ReaderState, WriterState, redistribute
from shuffle_api.streaming.watermarks import Watermarks

__all__ = [
    "Aligner",
    "Alignment",
    "Barrier",
    "Captured",
    "EndOfPartition",
    "Guarantee",
    "Idle",
    "InFlight",
    "Marker",
    "Position",
    "ReaderState",
    "Step",
    "Watermark",
    "Watermarks",
    "WriterState",
    "key_group",
    "key_group_range",
    "owner_of",
    "redistribute",
]
