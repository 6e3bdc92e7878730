"""Flight Shuffle's API: the interfaces a shuffle is made of, and what every plugin shares.

Start with `shuffle_api.interfaces` (the order of calls) and docs/api.md. `shuffle_api.registry` is the
metadata state machine, `shuffle_api.testing` the in-memory plugin and the exam for plugins.
"""

from shuffle_api.buffer import Buffer
from shuffle_api.errors import ErrorCode, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import (
    NO_OPTIONS,
    Options,
    OptionValue,
    ShuffleMaster,
    ShufflePlugin,
    ShuffleReader,
    ShuffleWriter,
    SupportsReadBlocks,
    SupportsWriteBlock,
)
from shuffle_api.plugins import known_plugins, load_plugin, open_plugin
from shuffle_api.values import (
    BLOCKING,
    HYBRID,
    PIPELINED,
    LostMapOutput,
    MapOutput,
    PartitionMode,
    ShuffleHandle,
    ShuffleSpec,
    Totals,
    WorkerInfo,
)

__all__ = [
    "BLOCKING",
    "HYBRID",
    "NO_OPTIONS",
    "PIPELINED",
    "Buffer",
    "ErrorCode",
    "LostMapOutput",
    "MapAttempt",
    "MapOutput",
    "OptionValue",
    "Options",
    "PartitionMode",
    "ShuffleError",
    "ShuffleHandle",
    "ShuffleId",
    "ShuffleMaster",
    "ShufflePlugin",
    "ShuffleReader",
    "ShuffleSpec",
    "ShuffleWriter",
    "SupportsReadBlocks",
    "SupportsWriteBlock",
    "Totals",
    "WorkerInfo",
    "known_plugins",
    "load_plugin",
    "open_plugin",
]
