"""Applications: any number of runs have a name at once, and no run ever sees another's data."""

from __future__ import annotations

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputNotWritten, ShuffleError, UnknownShuffle
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

    def test_runs_of_one_application_share_nothing(
        self, plugin: ShufflePlugin, master: ShuffleMaster, app: str
    ) -> None:
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        with plugin.master(app) as second:
            mine = master.register_shuffle(2, 1, shuffle=7)
            others = second.register_shuffle(2, 1, shuffle=7)
            assert mine.spec.id != others.spec.id
            oracle.write(plugin, mine, WORKLOAD, MapAttempt(0, 0))
            oracle.write(plugin, others, OTHER, MapAttempt(0, 0))
            oracle.verify(OTHER.expected(OTHER.attempts(), range(2)), oracle.read(plugin, others))
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, mine))

    def test_late_commit_of_a_run_that_has_ended_is_refused_and_does_not_count_for_the_next(
        self, plugin: ShufflePlugin, app: str
    ) -> None:
        self.needs(plugin.mode.reconsumable and not plugin.mode.bounded, "keeps what has committed")
        first = plugin.master(app)
        late = plugin.writer(first.register_shuffle(2, 1, shuffle=0), MapAttempt(0, 1))
        oracle.fill(late, OTHER.written(MapAttempt(0, 0)))
        first.close()
        with plugin.master(app) as second:
            handle = second.register_shuffle(2, 1, shuffle=0)
            with pytest.raises(ShuffleError):
                late.commit()
            late.abort()
            assert second.map_outputs(handle) == []
            oracle.write(plugin, handle, WORKLOAD, MapAttempt(0, 0))
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, handle))

    def test_application_may_run_again_once_its_master_is_closed(self, plugin: ShufflePlugin, app: str) -> None:
        for _ in range(2):
            with plugin.master(app) as master:
                handle = master.register_shuffle(1, 1, shuffle=1)
                assert master.map_outputs(handle) == []

    def test_closed_master_does_not_end_the_next_run(self, plugin: ShufflePlugin, app: str) -> None:
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
