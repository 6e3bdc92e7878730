"""docs/options.md, made from the options' own dataclasses and, for Spark, from the table in FlightConf.java."""

import dataclasses
import re
import sys
import textwrap
from pathlib import Path

from shuffle_api.options import OptionRow, default_text, option_spelling, options_table
from shuffle_plugins.hybrid.options import HybridOptions
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_server.options import ServerOptions, options_of

ROOT = Path(__file__).parents[1]
FLIGHT_CONF = ROOT / "plugins/spark/src/main/java/org/apache/spark/shuffle/flight/conf/FlightConf.java"
SPARK_OPTION = re.compile(r'new Option\(\s*PREFIX \+ "([\w.]+)",\s*("[^"]*"|null),\s*((?:"[^"]*"[\s+]*)+)\)')
WIDTH = 120
ROLES = ("server", "master", "worker")
SPARK_PREFIX = "spark.shuffle.flight."

HEAD = """\
# Options

Written by `scripts/generate-options`. Defaults are in parentheses.

Sizes are bytes and take suffixes, powers of 1024 (`64m`, `2g`); durations are seconds and take suffixes
(`500ms`, `5min`). An unknown option is refused, and the refusal lists the known ones. Certificates and keys are PEM.
"""
SERVER = """\
## Server: `flight-shuffle server`, `master`, `worker`

`server`, a master with a worker in one process ([cluster.md](cluster.md)), takes the options of both. IPv6 addresses
stand in brackets.
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
`flight-shuffle spark-conf --option NAME=VALUE`, there without the prefix. They are Spark
settings: sizes and durations are written as Spark takes them. Files are those of the driver's machine.
"""


def document() -> str:
    """The whole file."""
    remote = options_table(RemoteOptions)
    stored = {row.name for row in remote}
    pipelined = options_table(PipelinedOptions)
    hybrid = [row for row in options_table(HybridOptions) if row.name not in stored]
    spark = [cells(f"{SPARK_PREFIX}{name}", quoted(default), text) for name, default, text in spark_options()]
    python = [REMOTE, section(remote), PIPELINED, section(pipelined, "remote", remote)]
    python += [HYBRID, section(hybrid, "pipelined", pipelined)]
    return "\n".join([HEAD, SERVER, server_lists(), *python, SPARK, listed(spark)])


def section(rows: list[OptionRow], other: str = "", described: list[OptionRow] | None = None) -> str:
    """The list of a plugin's options; those that are the same as `described`, of the plugin `other`, are named."""
    same = [row.name for row in rows if row in (described or [])]
    shown = listed([row_text(row.name, row) for row in rows if row.name not in same])
    return shown + (f"\nAs in `{other}`: {', '.join(f'`{name}`' for name in same)}.\n" if same else "")


def spark_options() -> list[tuple[str, str, str]]:
    """Name, default and help of each option that FlightConf.java declares. Raises ValueError if it finds none."""
    found = SPARK_OPTION.findall(FLIGHT_CONF.read_text())
    if not found:
        raise ValueError(f"no options found in {FLIGHT_CONF}")
    return [
        (name, "required" if default == "null" else default.strip('"'), "".join(re.findall(r'"([^"]*)"', text)))
        for name, default, text in found
    ]


def server_lists() -> str:
    """The options by the roles that take them. `server` takes all but those that say so."""
    groups: dict[str, list[str]] = {title: [] for title in ("All", "Master", "Worker")}
    for row in options_table(ServerOptions):
        roles = {role for role in ROLES if row.name in {each.name for each in options_of(role)}}
        group = "All" if len(roles) == len(ROLES) else "Master" if "master" in roles else "Worker"
        alone = "" if "server" in roles else f"{group.lower()} alone: "
        groups[group].append(row_text(option_spelling(row.name), dataclasses.replace(row, help=alone + row.help)))
    return "\n".join(f"### {title}\n\n{listed(rows)}" for title, rows in groups.items())


def row_text(name: str, row: OptionRow) -> str:
    """Choices that the help does not name stand before it; sizes and durations show by their suffix what they are."""
    unit = f" {row.unit}" if row.unit not in ("", "bytes", "seconds") else ""
    choices = row.type.split(" | ") if " | " in row.type else []
    named = "" if all(choice in row.help for choice in choices) else f"{', '.join(map(quoted, choices))}: "
    return cells(name, quoted(default_text(row)) + unit, named + row.help)


def cells(name: str, default: str, text: str) -> str:
    return f"- `{name}`{f' ({default})' if default else ''}: {text}"


def quoted(text: str) -> str:
    return f"`{text}`" if text else ""


def listed(rows: list[str]) -> str:
    """Rows as a Markdown list, wrapped."""
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "".join(f"{wrap.fill(row)}\n" for row in rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document())
