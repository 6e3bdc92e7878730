"""What became of each test, how that differs from sort shuffle, and which differences have a reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FAILED = ("FAIL", "ABORT", "UNFINISHED")


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A test that passes with sort shuffle (``sort``) and not here (``mode``), or the other way round."""

    suite: str
    test: str
    mode: str
    sort: str
    here: str
    why: str = ""


def outcomes(tsv: Path) -> dict[str, tuple[str, str]]:
    """Per test its status and the reason of a failure, as TsvReporter has written them."""
    found: dict[str, tuple[str, str]] = {}
    if tsv.exists():
        for line in tsv.read_text(errors="replace").splitlines():
            status, _, test, _, reason = (line.split("\t") + [""] * 5)[:5]
            found[test] = ("UNFINISHED" if status == "START" else status, reason)
    return found


def failed(found: Mapping[str, tuple[str, str]]) -> list[str]:
    """The tests that failed or did not end."""
    return sorted(test for test, (status, _) in found.items() if status in FAILED)


def differences(
    suite: str, mode: str, sort: Mapping[str, tuple[str, str]], here: Mapping[str, tuple[str, str]]
) -> list[Difference]:
    """``sort`` may hold only the tests that failed in ``here``."""
    found = []
    for test, (status, why) in here.items():
        other = sort.get(test, ("PASS", ""))[0]
        if (status in FAILED) != (other in FAILED):
            found.append(Difference(suite, test, mode, other, status, why))
    return sorted(found)


def read_expected(file: Path = HERE / "expected.txt") -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The reasons by cause, and the cause of each (suite, test).

    Raises ValueError for a line that is neither, and for a cause without a reason.
    """
    reasons: dict[str, str] = {}
    causes: dict[tuple[str, str], str] = {}
    for line in file.read_text().splitlines():
        cause, colon, reason = line.removeprefix("# ").partition(": ")
        if line.startswith("#") and colon and " " not in cause:
            reasons[cause] = reason
        elif not line.startswith("#"):
            cause, suites, test = line.split("\t")
            if cause not in reasons:
                raise ValueError(f"{file.name}: the cause {cause} of {suites} has no reason")
            causes |= {(suite, test): cause for suite in suites.split(",")}
    return reasons, causes


def judge(
    found: Iterable[Difference], ran: Mapping[str, Iterable[str]], expected: Mapping[tuple[str, str], str]
) -> tuple[list[Difference], list[tuple[str, str]]]:
    """The differences that nobody expects, and what was expected to differ, ran, and does not."""
    found = list(found)
    differ = {(each.suite, each.test) for each in found}
    unexpected = [each for each in found if (each.suite, each.test) not in expected]
    gone = [
        (suite, test)
        for suite, tests in ran.items()
        for test in tests
        if (suite, test) in expected and (suite, test) not in differ
    ]
    return unexpected, sorted(gone)
