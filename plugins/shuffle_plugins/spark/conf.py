"""Spark's settings for shuffling through a Flight Shuffle server, as a dict and as text."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shuffle_api.address import parse_addresses
from shuffle_api.errors import InvalidArgument
from shuffle_plugins.spark.jar import SparkAlreadyStarted, find_jar, installed_spark

MANAGER = "org.apache.spark.shuffle.flight.FlightShuffleManager"
PIPELINED_MANAGER = "org.apache.spark.shuffle.flight.FlightPipelinedShuffleManager"
DATA_IO = "org.apache.spark.shuffle.flight.FlightShuffleDataIO"
REAL_TIME_SPARK = "4.3"
"""The first that has real-time mode."""
PREFIX = "spark.shuffle.flight."

FILES = {
    "tls_ca": "tls.ca",
    "tls_cert": "tls.cert",
    "tls_key": "tls.key",
    "secret_file": "token.secretFile",
    "token_file": "token.file",
}
"""The parameters that name files, and the options they set."""

FALLBACKS = ("auto", "never", "always")
FORMATS = ("conf", "defaults", "file", "json")


def spark_conf(
    server: str,
    *,
    fallback: str = "auto",
    tls_ca: str | Path = "",
    tls_cert: str | Path = "",
    tls_key: str | Path = "",
    secret_file: str | Path = "",
    token_file: str | Path = "",
    real_time: bool = False,
    options: Mapping[str, str | int | float | bool] | None = None,
    spark_version: str | None = None,
    jar: Path | None = None,
) -> dict[str, str]:
    """The settings for ``SparkSession.builder.config(map=...)``.

    ``server`` is ``HOST:PORT`` of the server's control endpoint; of several masters, separated by commas.
    ``fallback`` says when a shuffle goes Spark's own way: ``auto`` (no server answers), ``never`` (then the job fails)
    or ``always``. ``options`` are further settings below ``spark.shuffle.flight.``, given without that prefix; the
    plugin checks their names when the session starts.

    ``tls_ca`` (whom to trust) turns TLS on; ``tls_cert`` and ``tls_key`` are for a server that asks for a client's
    certificate. ``secret_file`` is the cluster secret, ``token_file`` a token. The driver reads these files, and
    executors receive from it what they need; so the settings hold names of files and no secret (docs/security.md). The
    names become absolute; one that is relative to the driver's working directory goes into ``options``.

    ``real_time``: the shuffles of real-time mode go through the server as well (Spark 4.3).

    The jar goes into ``spark.jars``, from where Spark brings it to every executor, so only the driver's machine needs
    this package. A job with jars of its own joins both lists with a comma. Executors of Spark 3.5 make their shuffle
    manager before they receive jars. So there the class path of executors names the jar as well: at its path here, and
    in the executor's working directory, where YARN puts it.

    :raises InvalidArgument: ``server`` is no ``HOST:PORT``, ``fallback`` none of the three; ``real_time`` without 4.3.
    :raises UnsupportedSpark, JarMissing: as `find_jar`; not with ``jar``.
    :raises SparkAlreadyStarted: this process runs Spark's JVM already, without the plugin.
    """
    check_choice("fallback", fallback, FALLBACKS)
    parse_addresses(server, "server")
    files = dict(zip(FILES.values(), (tls_ca, tls_cert, tls_key, secret_file, token_file), strict=True))
    version = spark_version or installed_spark() or ""
    if real_time and not _has_real_time(version):
        raise InvalidArgument(
            f"real-time mode needs Spark {REAL_TIME_SPARK} or later, and this is {version or 'none at all'}",
            remedy="use a later Spark, or leave real_time (--real-time) out",
        )
    jar = find_jar(spark_version) if jar is None else jar.resolve()
    check_plugin_visible(MANAGER)
    return {
        "spark.shuffle.manager": MANAGER,
        "spark.shuffle.sort.io.plugin.class": DATA_IO,
        **({"spark.shuffle.manager.incremental": PIPELINED_MANAGER} if real_time else {}),
        "spark.jars": str(jar),
        **({"spark.executor.extraClassPath": f"{jar}:{jar.name}"} if version.startswith("3.") else {}),
        f"{PREFIX}server": server,
        f"{PREFIX}fallback": fallback,
        **{f"{PREFIX}{name}": str(Path(file).absolute()) for name, file in files.items() if file},
        **{f"{PREFIX}{name}": _text(value) for name, value in (options or {}).items()},
    }


def conf_lines(conf: Mapping[str, str], format: str = "conf") -> str:
    """``conf`` as text: ``conf`` (options of spark-submit), ``defaults`` (spark-defaults.conf), ``file`` (the same with
    every value escaped, for ``spark-submit --properties-file``) or ``json``.

    :raises InvalidArgument: another format.
    """
    check_choice("format", format, FORMATS)
    if format == "json":
        return json.dumps(dict(conf), indent=2)
    if format == "file":
        return "\n".join(f"{_property(key, key=True)}={_property(value)}" for key, value in conf.items())
    if format == "defaults":
        # A Java properties file, in which a backslash begins an escape.
        return "\n".join("{} {}".format(key, value.replace("\\", "\\\\")) for key, value in conf.items())
    return "\n".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in conf.items())


def _property(text: str, *, key: bool = False) -> str:
    """``text`` as ``java.util.Properties`` reads it back: blanks in a key and before a value are
    escaped."""
    named = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    escaped = "".join(named.get(each, each) for each in text)
    if key:
        return escaped.replace(" ", "\\ ").replace("=", "\\=").replace(":", "\\:")
    blanks = len(escaped) - len(escaped.lstrip(" "))
    return "\\ " * blanks + escaped[blanks:]


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raises InvalidArgument unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InvalidArgument(f"{name} cannot be {value!r}", remedy=f"use one of: {', '.join(choices)}")


def _has_real_time(version: str) -> bool:
    minor = re.match(r"4\.(\d+)", version)
    return minor is not None and int(minor[1]) >= int(REAL_TIME_SPARK.partition(".")[2])


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_plugin_visible(manager: str) -> None:
    """PySpark starts one JVM per process, and only its start looks at the jars of the configuration.

    Raises SparkAlreadyStarted if this process runs Spark's JVM and that JVM cannot see the class ``manager``.
    """
    core = sys.modules.get("pyspark.core.context")  # not imported, then no session was ever started
    jvm = core.SparkContext._jvm if core is not None else None
    if jvm is None:
        return
    from py4j.protocol import Py4JJavaError

    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(manager)
    except Py4JJavaError as error:
        if "ClassNotFoundException" not in str(error.java_exception):
            raise
        raise SparkAlreadyStarted("Spark's JVM runs here already, without the Flight Shuffle plugin") from None
