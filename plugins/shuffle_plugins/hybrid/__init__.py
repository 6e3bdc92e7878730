"""Shuffle that is read while it is written, from memory, and again from the remote store (docs/hybrid.md)."""

from shuffle_plugins.hybrid.plugin import HybridShuffle
from shuffle_plugins.hybrid.reader import HybridReader
from shuffle_plugins.hybrid.statistics import HybridReaderStatistics, HybridWriterStatistics
from shuffle_plugins.hybrid.writer import HybridWriter

__all__ = ["HybridReader", "HybridShuffle", "HybridWriter", "HybridReaderStatistics", "HybridWriterStatistics"]
