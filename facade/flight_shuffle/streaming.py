"""`shuffle_api.streaming`, under the name of the distribution; with what programs use of the pipelined plugin."""

from shuffle_api import streaming as _streaming
from shuffle_api.records import unpack_records
from shuffle_api.streaming import *  # noqa: F403
from shuffle_plugins.pipelined import ConsumerGroup, DataBlock, DirectorySnapshots, KeyedState, SnapshotStore

__all__ = [
    *_streaming.__all__,
    "ConsumerGroup",
    "DataBlock",
    "DirectorySnapshots",
    "KeyedState",
    "SnapshotStore",
    "unpack_records",
]
