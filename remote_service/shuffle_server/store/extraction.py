"""Giving an output that lies in a compacted file a file of its own again: as such it moves to the object store."""

from __future__ import annotations

import os

import numpy as np

from shuffle_api.ids import ShuffleId
from shuffle_server.data_sync import sync_data
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedPlace
from shuffle_server.store.failures import lost
from shuffle_server.store.format import build_index, encode_tail
from shuffle_server.store.output_file import OutputFile, read_ranges, table_of

PIECE_BYTES = 8 << 20  # that are copied at a time


def extract(catalog: Catalog, shuffle: ShuffleId, held: CatalogEntry, place: CompactedPlace) -> CatalogEntry:
    """Copy an output out of its compacted file; what is held of it then.

    :raises MapOutputLost: it was removed meanwhile.
    :raises StorageFull, StorageFailed, TornFile, OSError: it stays where it is.
    """
    home = held.home
    home.check_room(held.bytes)
    path = home.paths.committed_text(shuffle, held.output)
    part = home.paths.partial_text(shuffle, held.output, next(home.numbers))
    try:
        _write(part, place.file.load(place.number), place.file.fd)
        home.publish(part, shuffle, held.output, sync=False)
    except BaseException:
        home.unlink(part)
        raise
    changed = catalog.change(shuffle, held)
    if changed is None:
        home.unlink(path)
        raise lost(shuffle, held.output, "it was removed")
    place.file.drop(place.number)
    return changed


def _write(path: str, file: OutputFile, source: int) -> None:
    """The blocks in the order in which they were first written."""
    entries = file.index[file.order()]
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, 0o600)) as target:
        for piece in _pieces(entries):
            payload = memoryview(bytearray(int(piece["length"].sum())))
            filled = piece[piece["length"] > 0]
            read_ranges([source] * len(filled), filled["offset"].tolist(), filled["length"].tolist(), payload)
            target.write(payload)
        target.write(encode_tail(build_index([table_of(entries)]), file.description))
        target.flush()
        sync_data(target.fileno())


def _pieces(entries: np.ndarray) -> list[np.ndarray]:
    if not len(entries):
        return []
    number = (np.cumsum(entries["length"]) - entries["length"]) // PIECE_BYTES
    return np.split(entries, np.flatnonzero(np.diff(number)) + 1)
