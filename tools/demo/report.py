"""What the demo shows: a row per query as it finishes, or one JSON document at the end."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import IO


@dataclass(frozen=True, slots=True)
class Line:
    """One query's outcome. Seconds are None where it failed; ``difference`` is None if the results are equal."""

    section: str
    query: str
    rows: int | None
    sort_seconds: float | None
    flight_seconds: float | None
    bytes_pushed: int
    difference: str | None


QUERY_WIDTH = 46
FORMAT = "{:<7} {:<" + str(QUERY_WIDTH) + "} {:>9} {:>9} {:>9} {:>10}  {}"


class Report:
    """Rows go to ``out`` as they come, or all at once as JSON; progress goes to ``err``."""

    def __init__(self, out: IO[str] = sys.stdout, *, as_json: bool, err: IO[str] = sys.stderr) -> None:
        self._out, self._err, self._json = out, err, as_json
        self.lines: list[Line] = []

    def progress(self, text: str) -> None:
        """What goes on now: a line, on a terminal one that the next overwrites."""
        if self._err.isatty():
            self._err.write(f"\r\033[K{text}")
        else:
            self._err.write(text + "\n")
        self._err.flush()

    def running(self, text: str) -> None:
        """The query that runs now; not where its row soon says the same."""
        if self._json or self._err.isatty():
            self.progress(text)

    def header(self) -> None:
        if not self._json:
            self._clear()
            self._print(FORMAT.format("", "query", "rows", "sort", "flight", "shuffled", "results"))

    def add(self, line: Line) -> None:
        self.lines.append(line)
        if not self._json:
            self._clear()
            self._print(
                FORMAT.format(
                    line.section,
                    line.query if len(line.query) <= QUERY_WIDTH else line.query[: QUERY_WIDTH - 1] + "…",
                    "-" if line.rows is None else f"{line.rows:,}",
                    seconds(line.sort_seconds),
                    seconds(line.flight_seconds),
                    size(line.bytes_pushed),
                    "equal" if line.difference is None else f"DIFFERENT: {line.difference}",
                )
            )

    def finish(self, problems: list[str]) -> None:
        """The totals, and what is wrong beyond single queries."""
        pushed = sum(line.bytes_pushed for line in self.lines)
        sort_total = sum(line.sort_seconds or 0.0 for line in self.lines)
        flight_total = sum(line.flight_seconds or 0.0 for line in self.lines)
        different = [line for line in self.lines if line.difference is not None]
        self._clear()
        if self._json:
            totals = {"sort_seconds": sort_total, "flight_seconds": flight_total, "bytes_pushed": pushed}
            queries = [asdict(line) | {"equal": line.difference is None} for line in self.lines]
            equal = not different and not problems
            json.dump({"queries": queries, "total": totals, "equal": equal, "problems": problems}, self._out, indent=2)
            self._out.write("\n")
            return
        verdict = "all equal" if not different else f"{len(different)} of {len(self.lines)} DIFFERENT"
        row = FORMAT.format("total", "", "", seconds(sort_total), seconds(flight_total), size(pushed), verdict)
        self._print(row)
        for problem in problems:
            self._print(f"problem: {problem}")

    def _print(self, text: str) -> None:
        self._out.write(text.rstrip() + "\n")
        self._out.flush()

    def _clear(self) -> None:
        if self._err.isatty():
            self._err.write("\r\033[K")
            self._err.flush()


def seconds(value: float | None) -> str:
    return "failed" if value is None else f"{value:.2f} s"


def size(count: int) -> str:
    """Bytes for people: 0 B, 17.2 KiB, 3.4 MiB."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
