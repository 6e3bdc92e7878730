"""Does a test fail for each rule of the transport that is broken? Run as a program, from the project's root.

    python tests/shuffle_transport/mutate.py [PART-OF-A-NAME ...]

Each mutation (mutations.txt) replaces one piece of source in a copy of the tree and runs the tests of that part
there. Exits with 1 when a mutation survives or does not apply; with 2 when none has that name. Ten seconds each,
a minute where a test hangs.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "transport/shuffle_transport"
TESTS = "tests/shuffle_transport"
COPIED = ("shuffle_api", "transport", TESTS)
# They test what no mutation changes, or need more.
OTHERS = ("test_frames.py", "test_freed_memory.py", "test_grpc_polling.py", "test_mutate.py")


@dataclass(frozen=True)
class Mutation:
    """`old`, which occurs once in `module`, becomes `new`; `name` says which rule that breaks."""

    module: str
    name: str
    old: str
    new: str

    @property
    def file(self) -> str:
        """The source; the loopback is a transport of the tests."""
        return f"{TESTS if self.module == 'loopback' else PACKAGE}/{self.module}.py"

    @property
    def label(self) -> str:
        """What it is called on the command line."""
        return f"{self.module}: {self.name}"


def read_mutations() -> list[Mutation]:
    """The mutations in mutations.txt, in its order: `# module: name`, lines with `-` (old) and with `+` (new)."""
    found = []
    for entry in (Path(__file__).parent / "mutations.txt").read_text().strip().split("\n\n"):
        title, *lines = entry.split("\n")
        module, _, name = title.removeprefix("# ").partition(": ")
        old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
        found.append(Mutation(module, name, old, new))
    return found


def copy_tree(to: Path) -> None:
    """What the tests need, with hypothesis told not to look for the shortest counterexample."""
    for name in COPIED:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    for module in (ROOT / "tests").glob("*.py"):  # conftest.py and what it imports
        shutil.copy(module, to / "tests")
    for test in (to / "tests").rglob("*.py"):
        phases = "deadline=None, phases=list(__import__('hypothesis').Phase)[:3])"
        test.write_text(test.read_text().replace("deadline=None)", phases))


def survives(tree: Path, mutation: Mutation) -> str | None:
    """What is wrong with the tests, or None if they find the mutation."""
    source = tree / mutation.file
    sound = source.read_text()
    if sound.count(mutation.old) != 1:
        return f"found {sound.count(mutation.old)} times: {mutation.old!r}"
    source.write_text(sound.replace(mutation.old, mutation.new))
    try:
        options = ["-q", "-x", "-p", "no:cacheprovider", "--timeout=60", "--timeout-method=thread"]
        command = [sys.executable, "-m", "pytest", *options, *tests_of(mutation.module)]
        result = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600)
    finally:
        source.write_text(sound)
    failed = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if any("::" not in line for line in failed):
        return f"its tests could not be collected: {failed}"
    # A thread that never ends makes the timeout end the whole run: that is a failing test as well.
    hung = "Timeout" in result.stdout + result.stderr
    found = result.returncode and (failed or hung)
    return None if found else f"survives (exit status {result.returncode}): {result.stdout[-300:]}"


def tests_of(module: str) -> list[str]:
    """Pytest's arguments: the tests of the channels for their modules, those of the parts for the others."""
    if module.startswith("channels/"):
        return [f"{TESTS}/channels"]
    return [TESTS, *(f"--ignore={TESTS}/{name}" for name in ("channels", "bench", *OTHERS))]


def main(wanted: list[str]) -> int:
    chosen = [each for each in read_mutations() if not wanted or any(word in each.label for word in wanted)]
    if not chosen:
        print(f"no mutation has one of these in its name: {', '.join(wanted)}", file=sys.stderr)
        return 2
    problems = []
    with tempfile.TemporaryDirectory(prefix="transport-mutations-") as name:
        copy_tree(Path(name))
        for number, mutation in enumerate(chosen, 1):
            problem = survives(Path(name), mutation)
            print(f"{number}/{len(chosen)} {mutation.label}: {problem or 'found'}", flush=True)
            if problem:
                problems.append(f"{mutation.label}: {problem}")
    print("\n".join(problems) or f"every mutation was found, {len(chosen)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
