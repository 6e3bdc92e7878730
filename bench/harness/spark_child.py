"""The driver process that `bench.harness.spark_driver` starts: ``python -m bench.harness.spark_child PIPE``.

It receives, over the inherited pipe: a dict (end the session; these are the settings of the next), a `Call`, or
None (stop). It answers the first two with ``(True, result)`` or ``(False, traceback text)``.
"""

import faulthandler
import importlib
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from pyspark.sql import SparkSession

from bench.harness.jvm_threads import PYTHON_STACKS
from bench.harness.spark import end_jvm
from bench.harness.spark_driver import Call


def serve(pipe: Connection) -> None:
    """Answer calls until None comes or the parent is gone."""
    conf: dict[str, str] = {}
    try:
        while (message := pipe.recv()) is not None:
            if isinstance(message, Call):
                pipe.send(_answer(conf, message))
            else:
                _stop_session()
                conf = message
                pipe.send((True, None))
    except EOFError:
        pass  # the parent ended: so do we
    finally:
        _stop_session()
        end_jvm()


def _answer(conf: dict[str, str], call: Call) -> tuple[bool, Any]:
    try:
        spark = SparkSession.getActiveSession() or SparkSession.builder.config(map=dict(conf)).getOrCreate()
        function: Callable[..., Any] = getattr(importlib.import_module(call.module), call.function)
        return True, function(spark, **call.arguments)
    except Exception:  # noqa: BLE001 - whatever it is, the caller is to learn of it
        return False, traceback.format_exc()


def _stop_session() -> None:
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


if __name__ == "__main__":
    faulthandler.register(PYTHON_STACKS)
    serve(Connection(int(sys.argv[1])))
