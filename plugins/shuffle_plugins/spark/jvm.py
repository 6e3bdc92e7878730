"""Is it too late? PySpark starts one JVM per process, and only its start looks at the jars of the configuration."""

import sys

from shuffle_plugins.spark.errors import SparkAlreadyStarted


def check_plugin_visible(manager: str) -> None:
    """Raises SparkAlreadyStarted if this process runs Spark's JVM and that JVM cannot see the class ``manager``."""
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
