"""What tests of plugins and of programs that use them need: the double and the exam.

`MemoryShuffle` is a complete plugin in this process's memory. `oracle` makes workloads from a seed and says what
a reader must return. `ShufflePluginTests` is the exam every plugin must pass; it alone needs pytest and hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shuffle_api.testing import oracle
from shuffle_api.testing.memory import MemoryShuffle

if TYPE_CHECKING:
    from shuffle_api.testing.plugin_tests import ShufflePluginTests

__all__ = ["MemoryShuffle", "ShufflePluginTests", "oracle"]


def __getattr__(name: str) -> Any:
    # Imported on demand, so that programs may use the double without having pytest installed.
    if name != "ShufflePluginTests":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    pytest.register_assert_rewrite("shuffle_api.testing.plugin_tests")
    from shuffle_api.testing.plugin_tests import ShufflePluginTests

    return ShufflePluginTests
