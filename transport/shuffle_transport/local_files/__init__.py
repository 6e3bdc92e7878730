"""Local files: what a client on a worker's host does instead of pushing and pulling (docs/protocol.md)."""

from shuffle_transport.local_files.access import LocalFileAccess
from shuffle_transport.local_files.index_cache import OutputIndex
from shuffle_transport.local_files.local_fetch import FetchStream, LocalFetch, locate_blocks
from shuffle_transport.local_files.local_file_writer import LocalFileWriter

__all__ = ["LocalFileAccess", "LocalFileWriter", "LocalFetch", "OutputIndex", "FetchStream", "locate_blocks"]
