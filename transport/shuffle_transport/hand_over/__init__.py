"""Hand-over by file: what a client on a worker's host does instead of pushing and pulling (docs/protocol.md)."""

from shuffle_transport.hand_over.known import OutputIndex
from shuffle_transport.hand_over.lent_file import LentFile
from shuffle_transport.hand_over.located import LocatedPull, Stream, locate_blocks
from shuffle_transport.hand_over.sight import HandOver

__all__ = ["HandOver", "LentFile", "LocatedPull", "OutputIndex", "Stream", "locate_blocks"]
