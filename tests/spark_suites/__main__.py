"""``scripts/spark-suites``: Apache Spark's own test suites over the plugin, beside sort shuffle.

A suite runs through a server first, with ``fallback=never``; the tests that fail run with sort shuffle too. A test that
fails here alone must stand in expected.txt with a cause, and one that stands there must differ in the newest Spark.
"""

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.spark_suites.lines import LINES, line_of
from tests.spark_suites.material import HERE, prepare
from tests.spark_suites.outcomes import Difference, differences, failed, judge, outcomes, read_expected
from tests.spark_suites.running import Runner
from tests.spark_suites.serving import MODES, serving

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "org.apache.spark."
NEWEST = "4.2.0"


def main() -> int:
    given = arguments()
    work: Path = given.work
    work.mkdir(parents=True, exist_ok=True)
    material = prepare(work, given.spark)
    _, expected = read_expected()
    found: list[Difference] = []
    ran: dict[str, list[str]] = {}
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(dir=work)))
        settings = {mode: running.enter_context(serving(mode, scratch / mode, given.spark)) for mode in given.modes}
        runner = Runner(work, scratch, material, settings, given.limit)
        for name in given.suite or every_suite(given.spark):
            suite = PACKAGE + name.removeprefix(PACKAGE)
            for mode in settings:
                found += compare(runner, suite, mode, given.test)
                ran.setdefault(suite.removeprefix(PACKAGE), []).extend(outcomes(runner.tsv(suite, mode)))
    unexpected, gone = judge(found, ran, expected)
    return report(unexpected, gone if given.spark == NEWEST else [], len(found))


def every_suite(version: str) -> list[str]:
    lines = (HERE / "suites.txt").read_text().splitlines()
    names = line_of(version).names
    return [names.get(line, line) for line in lines if not line.startswith("#")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/spark-suites", description="Spark's own suites over the plugin")
    parser.add_argument("suite", nargs="*", help=f"without {PACKAGE}; default: those of suites.txt, two hours and more")
    parser.add_argument("--spark", default=NEWEST, metavar="X.Y.Z", help=f"{NEWEST} or another of {', '.join(LINES)}")
    parser.add_argument(
        "--modes", type=modes, default="flight", help=f"of {', '.join(MODES)}, with commas; default: flight"
    )
    parser.add_argument("--test", action="append", default=[], metavar="TEXT", help="only tests whose names have TEXT")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="of one suite; default: 3600")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "spark-suites", help="for jars and results")
    return parser.parse_args()


def modes(names: str) -> list[str]:
    """Raises argparse.ArgumentTypeError for one that is not there."""
    chosen = list(dict.fromkeys(names.split(",")))  # each has one server
    if unknown := [name for name in chosen if name not in MODES]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: the modes are {', '.join(MODES)}")
    return chosen


def compare(runner: Runner, suite: str, mode: str, containing: list[str]) -> list[Difference]:
    """Run ``suite`` in ``mode``, and what failed with sort shuffle as well."""
    seconds = runner.run(suite, mode, containing=containing)
    here = outcomes(runner.tsv(suite, mode))
    count = Counter(status for status, _ in here.values())
    name = suite.removeprefix(PACKAGE)
    print(f"{name} {mode}: {dict(sorted(count.items()))} in {seconds:.0f} s", flush=True)
    if not here:
        return [
            Difference(
                name, "(suite)", mode, "PASS", "ABORT", f"no test ran: {runner.tsv(suite, mode).with_suffix('.out')}"
            )
        ]
    wrong = failed(here)
    if not wrong:
        return []
    runner.run(suite, "sort", wrong)
    return differences(name, mode, outcomes(runner.tsv(suite, "sort")), here)


def report(unexpected: list[Difference], gone: list[tuple[str, str]], all_of_them: int) -> int:
    for each in unexpected:
        print(f"not expected: {each.suite} | {each.test} | sort {each.sort} | {each.mode} {each.here} | {each.why}")
    for suite, test in gone:
        print(f"does not differ any more, take it out of expected.txt: {suite} | {test}")
    print(f"spark-suites: {all_of_them} differences from sort shuffle, {len(unexpected)} of them not expected")
    return 1 if unexpected or gone else 0


if __name__ == "__main__":
    sys.exit(main())
