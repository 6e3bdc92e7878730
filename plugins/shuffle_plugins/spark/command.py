"""``flight-shuffle spark-conf``; found through the entry point group ``flight_shuffle.commands``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shuffle_api.errors import InvalidArgument
from shuffle_api.options import options_table
from shuffle_plugins.spark.conf import FALLBACKS, FILES, FORMATS, conf_lines, spark_conf
from shuffle_transport.credential_files import ClientOptions

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand. Its parser sets ``run``: a function of the parsed arguments that returns the exit status."""
    parser = subparsers.add_parser(
        "spark-conf",
        help="print the Spark settings that make a job shuffle through a server",
        description="Print the Spark settings that make a job shuffle through a server: as options of spark-submit, "
        "as lines of spark-defaults.conf, or as JSON.",
    )
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="the server's control address")
    parser.add_argument(
        "--fallback",
        choices=FALLBACKS,
        default="auto",
        help="when Spark's own shuffle is used: if no server answers (auto, the default), never, or always",
    )
    for row in options_table(ClientOptions):
        if row.name in FILES:
            parser.add_argument(f"--{row.name.replace('_', '-')}", default="", metavar="FILE", help=row.help)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a further setting spark.shuffle.flight.NAME; may be repeated",
    )
    parser.add_argument(
        "--real-time", action="store_true", help="for the shuffles of real-time mode as well (Spark 4.3)"
    )
    parser.add_argument("--format", choices=FORMATS, default="conf", help="default: conf, options of spark-submit")
    parser.add_argument("--spark-version", metavar="X.Y.Z", help="default: that of the installed PySpark")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the settings. Raises the errors of `spark_conf`."""
    conf = spark_conf(
        arguments.server,
        fallback=arguments.fallback,
        **{name: getattr(arguments, name) for name in FILES},
        real_time=arguments.real_time,
        options=dict(_pair(given) for given in arguments.option),
        spark_version=arguments.spark_version,
    )
    print(conf_lines(conf, arguments.format))  # noqa: T201 - what it prints is what it is for
    return 0


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals):
        raise InvalidArgument(f"--option {given!r} is not NAME=VALUE", remedy="for example --option memory=64m")
    return name, value
