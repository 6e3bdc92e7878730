"""Flight Shuffle under one name: what programs use of its packages. docs/api.md has the guide.

    from flight_shuffle import MapAttempt, open_plugin
    from flight_shuffle.columnar import HashPartitioner

The modules `columnar`, `errors`, `graph`, `sorting` and `streaming` have the names of `shuffle_api`; `dask` and `ray`
need the extras of these names. The classes of the plugins and what configures Spark are loaded when they are asked for.
`python -m flight_shuffle` is the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import shuffle_api
from shuffle_api import *  # noqa: F403
from shuffle_server import __version__

if TYPE_CHECKING:
    from shuffle_plugins.hybrid import HybridShuffle
    from shuffle_plugins.pipelined import PipelinedShuffle
    from shuffle_plugins.remote import RemoteShuffle
    from shuffle_plugins.spark import find_jar, spark_conf

_ON_DEMAND = {
    "HybridShuffle": "shuffle_plugins.hybrid",
    "PipelinedShuffle": "shuffle_plugins.pipelined",
    "RemoteShuffle": "shuffle_plugins.remote",
    "find_jar": "shuffle_plugins.spark",
    "spark_conf": "shuffle_plugins.spark",
}

__all__ = [
    *shuffle_api.__all__,
    "HybridShuffle",
    "PipelinedShuffle",
    "RemoteShuffle",
    "__version__",
    "find_jar",
    "spark_conf",
]


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
