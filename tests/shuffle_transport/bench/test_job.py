"""Jobs cross the wire unchanged, and make sense."""

import pytest

from shuffle_transport.bench.data import content, ring
from shuffle_transport.bench.job import Job
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import get_codec


def test_a_job_is_the_same_after_the_wire() -> None:
    job = Job("stall", 4096, 1024, 7, 3, "lz4", "rows")
    assert Job.load(job.dump()) == job
    assert (job.volume, job.blocks) == (7 * 4096, 28)


@pytest.mark.parametrize(("message", "block"), [(1000, 300), (10, 20), (10, 0)])
def test_messages_hold_whole_blocks(message: int, block: int) -> None:
    with pytest.raises(ValueError, match=f"messages of {message} bytes"):
        Job("sink", message, block)


def test_a_ring_has_different_messages_with_true_tables() -> None:
    first, second, *_ = ring(Job("sink", 8192, 2048))
    assert first.payload != second.payload
    assert first.rows["length"].tolist() == [2048] * 4
    assert first.rows["crc32c"][1] == crc32c(first.payload[2048:4096])


def test_rows_shrink_to_about_half_and_noise_does_not() -> None:
    lz4 = get_codec("lz4")
    shrunk = lz4.compress(content(256 << 10, "rows", 1))
    assert shrunk is not None
    assert 0.3 < memoryview(shrunk).nbytes / (256 << 10) < 0.7
    assert lz4.compress(content(256 << 10, "noise", 1)) is None
