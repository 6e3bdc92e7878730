"""Runs a target on bad inputs, in a process of its own: an input that ends the process, or on which it hangs, is found
like one that raises.

Before each input the process writes it to a file that both see, so that the other knows which one it was.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import multiprocessing
import resource
import shutil
import struct
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from tests.fuzz.plants import PLANTS
from tests.fuzz.targets import TARGETS, Read, Target, inputs

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 1 << 20  # of an input
HANG_SECONDS = 60.0
ADDRESS_SPACE = 16 << 30  # an input that asks for more than there is of it gets MemoryError, which is a finding
_HEAD = struct.Struct("<QQ")  # inputs so far, bytes of the one that is read


@dataclass(frozen=True)
class Finding:
    """An input that a target does not answer as it should, and its answer."""

    target: str
    data: bytes
    what: str

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return CORPUS / self.target / f"found-{hashlib.sha256(self.data).hexdigest()[:12]}.bin"


def corpus(name: str) -> dict[str, bytes]:
    """What is kept for a target: good inputs, and those that were found, by the names of their files."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))}


def write_seeds(target: Target) -> int:
    """Keep the good inputs of a target; how many there are."""
    with tempfile.TemporaryDirectory() as directory:
        seeds = target.seeds(Path(directory))
    where = CORPUS / target.name
    where.mkdir(parents=True, exist_ok=True)
    for old in where.glob("seed-*.bin"):
        old.unlink()
    for number, data in enumerate(seeds):
        (where / f"seed-{number}.bin").write_bytes(data)
    return len(seeds)


def try_one(target: Target, read: Read, data: bytes) -> str:
    """What is wrong with the answer to an input; empty when nothing is."""
    try:
        read(data)
    except target.answers:
        return ""
    except BaseException:  # noqa: BLE001 - what it raises is what is looked for
        return traceback.format_exc()
    return ""


def fuzz(target: Target, seconds: float, seed: int) -> tuple[int, Finding | None]:
    """Bad inputs for so many seconds; how many there were, and the first that is not answered as it should be."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{target.name}-") as name:
        shared = Path(name) / "input"
        shared.write_bytes(bytes(_HEAD.size + MOST_BYTES))
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(target.name, seconds, seed, Path(name), theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            what = _watch(process, mine, shared)
        finally:
            process.kill()
            process.join()
        count, data = _last(shared)
    return count, Finding(target.name, data, what) if what else None


def _watch(process: multiprocessing.process.BaseProcess, said: Connection, shared: Path) -> str:
    """Until the process ends; what is wrong."""
    last, since = -1, time.monotonic()
    while True:
        if said.poll(0.5):
            try:
                return str(said.recv())
            except EOFError:
                process.join(10)
                return f"the process ended with exit status {process.exitcode}"
        count = _last(shared)[0]
        if count != last:
            last, since = count, time.monotonic()
        elif time.monotonic() - since > HANG_SECONDS:
            return f"no answer within {HANG_SECONDS:g} s"


def _last(shared: Path) -> tuple[int, bytes]:
    whole = shared.read_bytes()
    count, size = _HEAD.unpack_from(whole)
    return count, whole[_HEAD.size : _HEAD.size + size]


def _child(name: str, seconds: float, seed: int, root: Path, said: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    logging.disable(logging.CRITICAL)
    target = (TARGETS | PLANTS)[name]
    directory = root / "own"
    directory.mkdir()
    with open(root / "input", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        said.send(run(target, directory, seconds, seed, lambda count, data: _note(memory, count, data)))
    shutil.rmtree(directory, ignore_errors=True)


def _note(memory: mmap.mmap, count: int, data: bytes) -> None:
    memory[: _HEAD.size + len(data)] = _HEAD.pack(count, len(data)) + data


def run(target: Target, directory: Path, seconds: float, seed: int, note: Callable[[int, bytes], None]) -> str:
    """In this process: what is wrong with the answer to the last input that was noted."""
    known: Sequence[bytes] = list(corpus(target.name).values()) or target.seeds(directory)
    read, give_up = target.begin(directory), time.monotonic() + seconds
    for count, data in enumerate(inputs(target, known, Random(seed))):
        if time.monotonic() >= give_up:
            return ""
        cut = data[:MOST_BYTES]
        note(count + 1, cut)
        if what := try_one(target, read, cut):
            return what
    return ""
