"""docs/options.md, made from the options' own dataclasses and, for Spark, from the table in FlightConf.java."""

import re
import sys
from pathlib import Path

from shuffle_api.options import OptionRow, default_text, options_table
from shuffle_plugins.hybrid.options import HybridOptions
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_server.options import ServerOptions, options_of

ROOT = Path(__file__).parents[1]
FLIGHT_CONF = ROOT / "plugins/spark/src/main/java/org/apache/spark/shuffle/flight/FlightConf.java"
SPARK_OPTION = re.compile(r'new Option\(\s*PREFIX \+ "([\w.]+)",\s*("[^"]*"|null),\s*((?:"[^"]*"[\s+]*)+)\)')
ROLES = ("server", "master", "worker")
SPARK_PREFIX = "spark.shuffle.flight."

HEAD = """\
# Options

Written by `scripts/generate-options` from the code; a test compares them.

Sizes are bytes and take suffixes, powers of 1024 (`64m`, `2g`); durations are seconds and take suffixes
(`500ms`, `5min`). An unknown option is refused, and the refusal lists the known ones.
"""
SERVER = """\
## Server: `flight-shuffle server`, `master`, `worker`

`server` is a master with a worker, in one process ([cluster.md](cluster.md)). The second column says
who takes an option.
"""
REMOTE = """\
## Python: `open_plugin("remote", {...})`
"""
PIPELINED = """\
## Python: `open_plugin("pipelined", {...})`
"""
HYBRID = """\
## Python: `open_plugin("hybrid", {...})`

All of `remote`, and besides:
"""
SPARK = f"""\
## Spark: `{SPARK_PREFIX}*`

Set by `spark_conf(server, fallback=..., options={{...}})` or
`flight-shuffle spark-conf --server ... --option NAME=VALUE`, there without the prefix. They are Spark
settings: sizes and durations are written as Spark takes them.
"""


def document() -> str:
    """The whole file."""
    server = [server_row(row) for row in options_table(ServerOptions)]
    remote = [row_text(row.name, row) for row in options_table(RemoteOptions)]
    pipelined = [row_text(row.name, row) for row in options_table(PipelinedOptions)]
    stored = {row.name for row in options_table(RemoteOptions)}
    hybrid = [row_text(row.name, row) for row in options_table(HybridOptions) if row.name not in stored]
    spark = [cells(f"{SPARK_PREFIX}{name}", default, text) for name, default, text in spark_options()]
    full, short = ("option", "type", "default", "what"), ("option", "default", "what")
    whose = ("option", "of", "type", "default", "what")
    python = [REMOTE, table(full, remote), PIPELINED, table(full, pipelined), HYBRID, table(full, hybrid)]
    return "\n".join([HEAD, SERVER, table(whose, server), *python, SPARK, table(short, spark)])


def spark_options() -> list[tuple[str, str, str]]:
    """Name, default and help of each option that FlightConf.java declares. Raises ValueError if it finds none."""
    found = SPARK_OPTION.findall(FLIGHT_CONF.read_text())
    if not found:
        raise ValueError(f"no options found in {FLIGHT_CONF}")
    return [
        (name, "required" if default == "null" else default.strip('"'), "".join(re.findall(r'"([^"]*)"', text)))
        for name, default, text in found
    ]


def server_row(row: OptionRow) -> str:
    name = f"--{row.name.replace('_', '-')}"
    roles = [role for role in ROLES if row.name in {each.name for each in options_of(role)}]
    who = "all" if len(roles) == len(ROLES) else ", ".join(roles)
    return row_text(name, row).replace(f"| `{name}` |", f"| `{name}` | {who} |")


def row_text(name: str, row: OptionRow) -> str:
    kind = f"{row.type}, {row.unit}" if row.unit else row.type
    return f"| `{name}` | {escaped(kind)} | {quoted(default_text(row))} | {escaped(row.help)} |"


def cells(name: str, default: str, text: str) -> str:
    return f"| `{name}` | {quoted(default)} | {escaped(text)} |"


def quoted(text: str) -> str:
    return f"`{text}`" if text else ""


def table(head: tuple[str, ...], rows: list[str]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *rows]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document())
