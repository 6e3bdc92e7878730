"""Errors: typed, saying what was wrong and what to do, able to travel."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from shuffle_api.errors import ErrorCode, InvalidArgument, ShuffleError, UnknownOption
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import (
    OptionValue,
    ShuffleMaster,
    ShufflePlugin,
    ShuffleReader,
    ShuffleWriter,
)
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase


class ErrorTests(PluginTestBase):
    """Bad arguments and bad options."""

    def test_plugin_has_a_name_and_implements_the_interfaces(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = master.register_shuffle(1, 1)
        assert type(plugin).name
        assert isinstance(plugin, ShufflePlugin)
        assert isinstance(master, ShuffleMaster)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            assert isinstance(writer, ShuffleWriter)
        with plugin.reader(handle, range(1)) as reader:
            assert isinstance(reader, ShuffleReader)

    def test_unknown_option_is_refused_and_the_known_ones_are_listed(self, options: dict[str, OptionValue]) -> None:
        with pytest.raises(UnknownOption, match="no_such_option") as raised:
            self.plugin_class({**options, "no_such_option": 1}).close()
        assert set(options) <= set(raised.value.known)
        assert all(known in str(raised.value) for known in raised.value.known)

    @pytest.mark.parametrize("partition", [-1, 3, 2**31])
    def test_partition_out_of_range_is_refused_by_value_and_range(
        self, plugin: ShufflePlugin, master: ShuffleMaster, partition: int
    ) -> None:
        handle = master.register_shuffle(3, 1)
        with (
            plugin.writer(handle, MapAttempt(0, 0)) as writer,
            pytest.raises(InvalidArgument, match=rf"{partition}\b.*\b3\b"),
        ):
            writer.write(partition, b"record")

    def test_refused_record_does_not_spoil_the_attempt(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.shuffle(plugin, master)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            writer.write(0, b"one")
            with pytest.raises(InvalidArgument):
                writer.write(1, b"refused")
            writer.write(0, b"two")
            writer.commit()
        assert oracle.read(plugin, handle) == [(0, b"one"), (0, b"two")]

    def test_map_out_of_range_is_refused(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(1, 3)
        with pytest.raises(InvalidArgument, match=r"\b3\b"), plugin.writer(handle, MapAttempt(3, 0)) as writer:
            writer.commit()

    def test_errors_have_code_and_remedy_and_survive_pickling(
        self, plugin: ShufflePlugin, master: ShuffleMaster, app: str
    ) -> None:
        handle = master.register_shuffle(1, 1)
        master.unregister_shuffle(handle)
        failing: list[Callable[[], object]] = [
            lambda: oracle.read(plugin, handle),
            lambda: master.register_shuffle(0, 1),
            lambda: plugin.master(f"{app}/"),
            lambda: master.map_outputs(handle),
        ]
        for call in failing:
            with pytest.raises(ShuffleError) as raised:
                call()
            error = raised.value
            assert error.code in ErrorCode
            assert error.message
            assert error.remedy
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is type(error)
            assert (str(again), vars(again)) == (str(error), vars(error))
