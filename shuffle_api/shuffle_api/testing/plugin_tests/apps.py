"""Applications: ids are taken by one run at a time, and no run ever sees another's data."""

from __future__ import annotations

import pytest

from shuffle_api.errors import AppExists, InvalidArgument, MapOutputNotWritten, ShuffleError, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase

WORKLOAD = oracle.Workload(seed=41, partitions=2, maps=1)
OTHER = oracle.Workload(seed=42, partitions=2, maps=1)


class AppTests(PluginTestBase):
    """Isolation and the life of an application."""

    def test_two_applications_with_the_same_shuffle_number_see_their_own_data(
        self, plugin: ShufflePlugin, master: ShuffleMaster, app: str
    ) -> None:
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        with plugin.master(f"{app}-other") as other_master:
            mine = master.register_shuffle(2, 1, shuffle=7)
            others = other_master.register_shuffle(2, 1, shuffle=7)
            oracle.write(plugin, mine, WORKLOAD, MapAttempt(0, 0))
            oracle.write(plugin, others, OTHER, MapAttempt(0, 0))
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, mine))
            oracle.verify(OTHER.expected(OTHER.attempts(), range(2)), oracle.read(plugin, others))

    def test_commit_of_another_application_does_not_count(
        self, plugin: ShufflePlugin, master: ShuffleMaster, app: str
    ) -> None:
        mine = self.shuffle(plugin, master, partitions=2)
        with plugin.master(f"{app}-other") as other_master:
            others = other_master.register_shuffle(2, 1, shuffle=mine.spec.id.shuffle)
            oracle.write(plugin, others, OTHER, MapAttempt(0, 0))
            assert master.map_outputs(mine) == []
            if plugin.mode.start == "after_commit":  # else a reader would wait for a writer
                with pytest.raises(MapOutputNotWritten):
                    oracle.read(plugin, mine)

    def test_end_of_one_application_leaves_the_others(
        self, plugin: ShufflePlugin, master: ShuffleMaster, app: str
    ) -> None:
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        mine = master.register_shuffle(2, 1, shuffle=7)
        with plugin.master(f"{app}-other") as other_master:
            others = other_master.register_shuffle(2, 1, shuffle=7)
            oracle.write(plugin, mine, WORKLOAD, MapAttempt(0, 0))
            oracle.write(plugin, others, OTHER, MapAttempt(0, 0))
            other_master.unregister_shuffle(others)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, mine))

    def test_application_id_in_use_is_refused(self, plugin: ShufflePlugin, master: ShuffleMaster, app: str) -> None:
        with pytest.raises(AppExists, match=app):
            plugin.master(app)

    def test_refused_application_does_not_end_the_one_that_has_the_id(
        self, plugin: ShufflePlugin, master: ShuffleMaster, app: str
    ) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        with pytest.raises(AppExists):
            plugin.master(app)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, handle))

    def test_application_id_is_free_again_once_its_master_is_closed(self, plugin: ShufflePlugin, app: str) -> None:
        for _ in range(2):
            with plugin.master(app) as master:
                handle = master.register_shuffle(1, 1, shuffle=1)
                assert master.map_outputs(handle) == []

    def test_closed_master_does_not_end_the_next_run_with_its_id(self, plugin: ShufflePlugin, app: str) -> None:
        first = plugin.master(app)
        first.close()
        with plugin.master(app) as second:
            handle = second.register_shuffle(1, 1)
            first.close()
            assert second.map_outputs(handle) == []

    def test_shuffles_end_with_their_application(self, plugin: ShufflePlugin, app: str) -> None:
        with plugin.master(app) as master:
            handle = self.stored(plugin, master, WORKLOAD)
        with pytest.raises(UnknownShuffle):
            oracle.read(plugin, handle)

    def test_shuffles_of_a_closed_plugin_end(
        self, plugin: ShufflePlugin, options: dict[str, OptionValue], app: str
    ) -> None:
        with self.plugin_class(options) as driver:
            handle = self.stored(driver, driver.master(app), WORKLOAD)
        with pytest.raises(ShuffleError):
            oracle.read(plugin, handle)

    @pytest.mark.parametrize("app", ["", ".hidden", "a/b", "..", "white space", "ü", "a" * 129])
    def test_application_id_that_is_no_name_is_refused(self, plugin: ShufflePlugin, app: str) -> None:
        with pytest.raises(InvalidArgument):
            plugin.master(app)
