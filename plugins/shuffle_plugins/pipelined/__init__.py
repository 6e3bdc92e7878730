"""Streaming shuffle in memory: read while it is written, with delivery guarantees (docs/pipelined.md)."""

from shuffle_plugins.pipelined.consumer_group import ConsumerGroup, KeyedState, PipelinedConsumer
from shuffle_plugins.pipelined.plugin import PipelinedShuffle
from shuffle_plugins.pipelined.progress import InputStatistics, SubpartitionStatistics
from shuffle_plugins.pipelined.reader import DataBlock, PipelinedReader
from shuffle_plugins.pipelined.snapshots import DirectorySnapshots, SnapshotStore
from shuffle_plugins.pipelined.statistics import PipelinedReaderStatistics, PipelinedWriterStatistics
from shuffle_plugins.pipelined.writer import PipelinedWriter

__all__ = [
    "ConsumerGroup",
    "DataBlock",
    "DirectorySnapshots",
    "InputStatistics",
    "KeyedState",
    "PipelinedConsumer",
    "PipelinedReader",
    "PipelinedShuffle",
    "PipelinedWriter",
    "PipelinedReaderStatistics",
    "PipelinedWriterStatistics",
    "SnapshotStore",
    "SubpartitionStatistics",
]
