"""The form of the registry's files: what is torn, what is damaged, what is another format."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_server.master.files import LocalDirectory
from shuffle_transport.checksum import crc32c
from shuffle_transport.frames import FILE_SIZE, LOG, SNAPSHOT, DamagedFile, FileHeader, FrameFile, encode_frame
from tests.shuffle_server.master.simulated import Inode, SimulatedDirectory

HEADER = FileHeader(LOG, epoch=7, lsn=100)
PAYLOADS = [b"first", b"", b"third\0\0\0"]
FRAMES = [encode_frame(100 + n, payload) for n, payload in enumerate(PAYLOADS)]
WHOLE = b"".join([HEADER.encode(), *FRAMES])
BORDERS = [len(HEADER.encode()) + sum(map(len, FRAMES[:n])) for n in range(len(FRAMES) + 1)]


def read(data: bytes, kind: bytes = LOG) -> tuple[list[bytes], FrameFile]:
    directory = SimulatedDirectory()
    directory.inodes["f"] = Inode(bytearray(data))
    with FrameFile(directory, "f", kind) as file:
        return [frame.payload for frame in file.frames()], file


def test_frames_are_read_as_they_were_written() -> None:
    directory = SimulatedDirectory()
    directory.inodes["f"] = Inode(bytearray(WHOLE))
    with FrameFile(directory, "f", LOG) as file:
        assert file.header == HEADER
        assert [(f.offset, f.lsn, f.payload) for f in file.frames()] == [
            (BORDERS[n], 100 + n, payload) for n, payload in enumerate(PAYLOADS)
        ]
        assert (file.end, file.torn) == (len(WHOLE), 0)


@pytest.mark.parametrize("size", range(FILE_SIZE, len(WHOLE) + 1))
def test_a_file_that_ends_anywhere_keeps_its_whole_frames_and_the_rest_is_torn(size: int) -> None:
    whole = sum(border <= size for border in BORDERS) - 1
    payloads, file = read(WHOLE[:size])
    assert payloads == PAYLOADS[:whole]
    assert file.end == BORDERS[whole]
    assert (file.torn > 0) == (WHOLE[BORDERS[whole] : size].strip(b"\0") != b"")


@given(st.integers(FILE_SIZE, len(WHOLE)), st.integers(0, 100_000))
def test_zeros_that_a_file_system_puts_at_the_end_are_no_frames(size: int, zeros: int) -> None:
    payloads, file = read(WHOLE[:size] + bytes(zeros))
    assert payloads == PAYLOADS[: sum(border <= size for border in BORDERS) - 1]
    assert file.end in BORDERS


@pytest.mark.parametrize("offset", range(len(WHOLE)))
def test_any_flipped_bit_is_found_and_named_and_what_comes_before_it_is_whole(offset: int) -> None:
    begin = max(border for border in (0, *BORDERS[:-1]) if border <= offset)
    for bit in range(8):
        data = bytearray(WHOLE)
        data[offset] ^= 1 << bit
        directory = SimulatedDirectory()
        directory.inodes["f"] = Inode(data)
        seen: list[bytes] = []
        with pytest.raises(DamagedFile, match=f"/simulated/f is damaged at offset {begin}:") as caught:
            with FrameFile(directory, "f", LOG) as file:
                for frame in file.frames():
                    seen += [frame.payload]
        assert seen == PAYLOADS[: len(seen)]
        assert "put back an undamaged copy" in caught.value.remedy


def test_another_format_is_refused_by_its_number() -> None:
    newer = bytearray(HEADER.encode())
    newer[4:8] = struct.pack("<I", 99)
    newer[-4:] = struct.pack("<I", crc32c(bytes(newer[:-4])))
    with pytest.raises(InvalidArgument, match=r"is in format 99, this release reads format 2"):
        read(bytes(newer))


@pytest.mark.parametrize(
    "data", [b"", b"FSRL", SNAPSHOT + HEADER.encode()[4:], b"\x16\0\0\0abcdefghijklmnopqrstuvwxyz"]
)
def test_a_file_of_another_kind_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedFile, match=r"does not begin as a file of its kind \(FSRL\)"):
        read(data)


def test_files_of_the_system_are_read_alike(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    file = directory.create("f")
    file.write(WHOLE)
    file.sync()
    file.close()
    again = directory.append("f")
    again.truncate(len(WHOLE) - 5)
    again.close()
    directory.rename("f", "g")
    directory.sync()
    with FrameFile(directory, "g", LOG) as frames:
        assert [frame.payload for frame in frames.frames()] == PAYLOADS[:-1]
        assert frames.torn == len(FRAMES[-1]) - 5
    assert directory.names() == ["g"]
