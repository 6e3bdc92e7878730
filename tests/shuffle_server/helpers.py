"""What several tests of the server need."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from bench.harness.files import files_below
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import ShufflePlugin
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from shuffle_server.worker.pull_room import PullRoom
from shuffle_transport.blocks import Block, BlockBatch, table_rows
from shuffle_transport.checksum import crc32c
from shuffle_transport.pool import BufferPool

SPEC = ShuffleSpec(ShuffleId("app", 3), 8, 4, codec="none")


def block(partition: int, payload: bytes, records: int = 1) -> Block:
    return Block(partition, crc32c(payload), len(payload), records, payload)


def batch(blocks: Sequence[Block]) -> BlockBatch:
    return BlockBatch(table_rows(blocks), memoryview(b"".join(bytes(memoryview(b.payload)) for b in blocks)))


def room() -> PullRoom:
    """For a pull that is to have all the memory that it wants."""
    return PullRoom(BufferPool(1 << 40), 0.0, "app", lambda: None)


def open_files(root: Path) -> list[str]:
    """The names of the files below it that this process has open."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread has closed it meanwhile
            links.append(os.readlink(link))
    return sorted(Path(link).name for link in links if link.startswith(f"{root}/"))


def write_map(
    plugin: ShufflePlugin, handle: ShuffleHandle, map_id: int, records: int = 200, attempt: int = 0
) -> list[tuple[int, bytes]]:
    """Write and commit one map; its (partition, record) pairs, sorted."""
    rng = np.random.default_rng(map_id * 1000 + attempt)
    written = [
        (int(p), f"{map_id}.{attempt}.{i} ".encode() + rng.bytes(int(n)))
        for i, (p, n) in enumerate(
            zip(rng.integers(0, handle.spec.partitions, records), rng.integers(0, 300, records), strict=True)
        )
    ]
    with plugin.writer(handle, MapAttempt(map_id, attempt)) as writer:
        for partition, record in written:
            writer.write(partition, record)
        writer.commit()
    return sorted(written)


def read_all(plugin: ShufflePlugin, handle: ShuffleHandle, maps: range | None = None) -> list[tuple[int, bytes]]:
    with plugin.reader(handle, range(handle.spec.partitions), maps) as reader:
        return sorted(reader)


def output_files(data_dir: Path) -> list[Path]:
    """All files of outputs, committed or not. Those that are kept to be written over are none."""
    return sorted(files_below(data_dir / "worker" / "apps"))


@contextmanager
def mounted_tmpfs(path: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes of its own: a disk that can really fill up. Needs root, as a container has."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True, timeout=30)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=30)


def fill(root: Path) -> Path:
    """A file that takes all the room that is left."""
    ballast = root / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk did not fill up")
