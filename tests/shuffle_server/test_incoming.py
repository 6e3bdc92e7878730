"""Messages of a push or a channel, as they come from a Flight reader that this file stands in for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_server.connection_guard import Peer
from shuffle_server.worker.incoming import Incoming
from shuffle_transport.blocks import PUT_SCHEMA


class Reader:
    """Flight's: its batch declares a body for which Arrow finds no memory."""

    schema = PUT_SCHEMA

    def __init__(self) -> None:
        self.reads = 0

    def read_chunk(self) -> Any:
        self.reads += 1
        raise pa.ArrowMemoryError("malloc of size 4611686018427387904 failed")


def test_a_body_that_arrow_cannot_expand_is_refused_and_ends_the_stream() -> None:
    reader, refused = Reader(), []
    incoming = Incoming(reader, PUT_SCHEMA, Peer(), lambda: refused.append(True))
    with pytest.raises(InvalidArgument, match=r"compressed by Arrow.*4611686018427387904 failed") as caught:
        incoming.read_chunk()
    assert "no compression in IpcWriteOptions" in caught.value.remedy
    assert list(incoming) == []
    assert (reader.reads, len(refused)) == (1, 1)
