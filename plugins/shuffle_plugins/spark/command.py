"""``flight-shuffle spark-conf``, found through the entry point group ``flight_shuffle.commands``; `doctor`'s checks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from shuffle_api.errors import InvalidArgument
from shuffle_plugins.spark.conf import FALLBACKS, FILES, FORMATS, conf_lines, spark_conf
from shuffle_plugins.spark.jar import find_jar, installed_spark
from shuffle_transport.command_line import (
    Command,
    Finding,
    Program,
    credential_options,
    keyring_of,
    server_of,
    server_option,
)

OLDEST_JAVA = 17
JAVA_SECONDS = 30.0


def register(program: click.Group) -> None:
    """Add the subcommand, and to a program with checks those of Spark."""
    program.add_command(spark_conf_command)
    if isinstance(program, Program):
        program.checks.append(check_spark)


@click.command(
    "spark-conf", cls=Command, short_help="print the Spark settings that make a job shuffle through a server"
)
@server_option(also_alone=True)
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
@click.pass_context
def spark_conf_command(
    context: click.Context,
    /,
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

    The files must be on this machine. A file that only the driver's machine has: --option tls.ca=PATH, for example.
    """
    server, form = server_of(context), "json" if as_json else form
    keyring_of(context)  # refuses files that are wrong or missing
    conf = spark_conf(
        server,
        fallback=fallback,
        tls_ca=files["tls_ca"] or "",
        tls_cert=files["tls_cert"] or "",
        tls_key=files["tls_key"] or "",
        secret_file=files["secret_file"] or "",
        token_file=files["token_file"] or "",
        real_time=real_time,
        options=_pairs(option),
        spark_version=spark_version,
    )
    if form == "conf":
        _warn_of_quotes(conf)
    click.echo(conf_lines(conf, form))


def _warn_of_quotes(conf: Mapping[str, str]) -> None:
    names = [name for name, value in conf.items() if shlex.quote(value) != value]
    if names:
        click.echo(
            f"the value of {names[0]} is printed in quotes, which stay where a shell puts the output of a command into"
            " another one. To do: use --format file, and spark-submit --properties-file",
            err=True,
        )


def _pairs(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--option {each!r} is not NAME=VALUE: write for example --option memory=64m")
        if found.setdefault(name, value) != value:
            raise click.UsageError(f"--option {name} is given twice, with {found[name]} and {value}: leave one out")
    return found


def check_spark() -> Iterator[Finding]:
    """PySpark and the plugin's jar, then Java; each only as far as the one before it makes sense."""
    spark = installed_spark()
    if spark is None:
        yield Finding("PySpark", "skipped", "none is installed here, so only Python programs use the server")
        return
    try:
        jar = find_jar()
    except InvalidArgument as error:
        yield Finding("PySpark and jar", "failed", f"PySpark {spark}: {error.message}", error.remedy)
    else:
        yield Finding("PySpark and jar", "ok", f"PySpark {spark}, {jar.name}")
    yield check_java()


def check_java() -> Finding:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    fix = f"install Java {OLDEST_JAVA} or later, and set JAVA_HOME to where it is"
    if java is None:
        return Finding("Java", "failed", "there is no java in PATH, and JAVA_HOME is not set", fix)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", "failed", f"{java} cannot be run: {error}", fix)
    found = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', done.stderr + done.stdout)
    if found is None:
        return Finding("Java", "failed", f"{java} -version does not say its version", fix)
    release = int(found[2] or 0) if found[1] == "1" else int(found[1])
    seen = f"Java {release}: {java}"
    return Finding("Java", "ok", seen) if release >= OLDEST_JAVA else Finding("Java", "failed", seen, fix)
