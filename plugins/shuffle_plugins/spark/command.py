"""``flight-shuffle spark-conf``; found through the entry point group ``flight_shuffle.commands``."""

from __future__ import annotations

from typing import Any

import click

from shuffle_plugins.spark.checks import check_spark
from shuffle_plugins.spark.conf import FALLBACKS, FILES, FORMATS, conf_lines, spark_conf
from shuffle_transport.command_line import (
    Addresses,
    Command,
    Program,
    credential_options,
    server_of,
    server_option,
)


def register(program: click.Group) -> None:
    """Add the subcommand, and to a program with checks those of Spark."""
    program.add_command(spark_conf_command)
    if isinstance(program, Program):
        program.checks.append(check_spark)


@click.command(
    "spark-conf", cls=Command, short_help="print the Spark settings that make a job shuffle through a server"
)
@click.argument("address", required=False, type=Addresses(), metavar="[HOST:PORT]")
@server_option()
@click.option(
    "--fallback",
    type=click.Choice(FALLBACKS),
    default="auto",
    help="when Spark's own shuffle is used: if no server answers (auto, the default), never, or always",
)
@credential_options(tuple(FILES))
@click.option(
    "--option", multiple=True, metavar="NAME=VALUE", help="a further setting spark.shuffle.flight.NAME; may be repeated"
)
@click.option("--real-time", is_flag=True, help="for the shuffles of real-time mode as well (Spark 4.3)")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="conf", help="default: conf, options of spark-submit"
)
@click.option("--json", "as_json", is_flag=True, help="the same as --format json")
@click.option("--spark-version", metavar="X.Y.Z", help="default: that of the installed PySpark")
def spark_conf_command(
    address: str | None,
    server: str | None,
    fallback: str,
    option: tuple[str, ...],
    real_time: bool,
    form: str,
    as_json: bool,
    spark_version: str | None,
    **files: Any,
) -> None:
    """Print the Spark settings that make a job shuffle through a server: as options of spark-submit, as lines of
    spark-defaults.conf, or as JSON.
    """
    conf = spark_conf(
        server_of(address, server),
        fallback=fallback,
        tls_ca=files["tls_ca"] or "",
        tls_cert=files["tls_cert"] or "",
        tls_key=files["tls_key"] or "",
        secret_file=files["secret_file"] or "",
        token_file=files["token_file"] or "",
        real_time=real_time,
        options=dict(_pair(given) for given in option),
        spark_version=spark_version,
    )
    click.echo(conf_lines(conf, "json" if as_json else form))


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--option {given!r} is not NAME=VALUE: write for example --option memory=64m")
    return name, value
