"""The exam every shuffle plugin must pass, ours and a stranger's. Needs pytest and hypothesis.

    from shuffle_api.testing import ShufflePluginTests

    class TestMyShuffle(ShufflePluginTests):
        plugin_class = MyShuffle

A plugin with options overrides the fixture `options`; one with optional abilities sets the flags of
`PluginTestBase`. What a plugin's `mode` does not promise (reading twice, say) is not asked of it.
"""

from shuffle_api.testing.plugin_tests.apps import AppTests
from shuffle_api.testing.plugin_tests.attempts import AttemptTests, ThreadTests
from shuffle_api.testing.plugin_tests.base import PluginTestBase
from shuffle_api.testing.plugin_tests.batches import BatchTests
from shuffle_api.testing.plugin_tests.blocks import BlockTests
from shuffle_api.testing.plugin_tests.closing import ClosingTests
from shuffle_api.testing.plugin_tests.errors import ErrorTests
from shuffle_api.testing.plugin_tests.handles import HandleTests
from shuffle_api.testing.plugin_tests.ranges import RangeTests
from shuffle_api.testing.plugin_tests.records import RecordTests
from shuffle_api.testing.plugin_tests.streaming import StreamingTests

__all__ = ["PluginTestBase", "ShufflePluginTests"]


class ShufflePluginTests(
    RecordTests,
    RangeTests,
    AttemptTests,
    HandleTests,
    AppTests,
    ClosingTests,
    ErrorTests,
    ThreadTests,
    StreamingTests,
    BlockTests,
    BatchTests,
):
    """Subclass it, name it `Test...`, set `plugin_class`."""
