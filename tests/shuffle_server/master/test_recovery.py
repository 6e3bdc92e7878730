"""What comes back after a crash: everything acknowledged, nothing by halves, and never a damaged byte."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_api.registry import Operation
from shuffle_api.registry.state import Registry
from shuffle_server.master.master import Master
from shuffle_server.master.recovery import recover
from shuffle_transport.frames import FILE_SIZE, DamagedFile
from tests.shuffle_server.master.scene import BEGIN, OPERATIONS, commit, registry_after
from tests.shuffle_server.master.simulated import Crash, Inode, SimulatedDirectory

SNAPSHOT = None  # in a history: a snapshot is made here
Step = Sequence[Operation] | None
HISTORY: list[Step] = [
    *([each] for each in OPERATIONS[:4]),
    SNAPSHOT,
    OPERATIONS[4:6],
    SNAPSHOT,
    SNAPSHOT,
    OPERATIONS[6:8],
    SNAPSHOT,
    OPERATIONS[8:],
]


def live(directory: SimulatedDirectory, history: Sequence[Step]) -> tuple[int, int]:
    """Do what the history says until it ends or the directory crashes: how many operations were acknowledged, and how
    many have been begun."""
    acknowledged = begun = 0
    master: Master | None = None
    try:
        master = Master(directory, sync=True)
        for step in history:
            if step is None:
                master.materialize()
            else:
                begun += len(step)
                master.apply_all(step)
                acknowledged = begun
    except Crash:
        pass
    if master is not None:
        with suppress(Crash):
            master.close()
    return acknowledged, begun


def check_recovers(directory: SimulatedDirectory, operations: Sequence[Operation], least: int, most: int) -> Registry:
    """What is recovered is the state after `least` or `most` of the operations, and after nothing in between."""
    registry = recover(directory).registry
    assert registry in [registry_after(operations[:least]), registry_after(operations[:most])]
    return registry


def steps_of(history: Sequence[Step]) -> int:
    directory = SimulatedDirectory()
    live(directory, history)
    return directory.steps


@pytest.mark.parametrize("power", [False, True], ids=["process dies", "machine dies"])
def test_a_crash_at_any_step_loses_nothing_acknowledged_and_shows_nothing_by_halves(power: bool) -> None:
    last = steps_of(HISTORY)
    assert last > 30
    for step in range(1, last + 1):
        for seed in range(6):
            directory = SimulatedDirectory(step, seed)
            acknowledged, begun = live(directory, HISTORY)
            after = directory.after_power_cut() if power else directory.after_process_crash()
            check_recovers(after, OPERATIONS, acknowledged, begun)


HISTORIES = st.lists(
    st.one_of(
        st.just(SNAPSHOT),
        st.lists(st.builds(commit, st.integers(0, 40), st.just(0), st.just(1)), min_size=1, max_size=4),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(HISTORIES, HISTORIES, st.integers(1, 80), st.integers(0, 2**20), st.booleans())
def test_any_history_goes_on_after_any_crash(
    first: list[Step], second: list[Step], crash_at: int, seed: int, power: bool
) -> None:
    directory = SimulatedDirectory(crash_at, seed)
    history = [BEGIN, *first]
    flat = [each for step in history if step for each in step]
    acknowledged, begun = live(directory, history)
    after = directory.after_power_cut() if power else directory.after_process_crash()
    registry = check_recovers(after, flat, acknowledged, begun)
    if not registry.workers():
        return
    again = [each for step in second if step for each in step]
    live(after, second)
    expected = registry_after([*registry.operations(), *again])
    final = recover(after.after_power_cut()).registry
    assert final == expected


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_a_log_cut_at_any_byte_recovers_its_whole_groups(sizes: list[int], data: st.DataObject) -> None:
    directory = SimulatedDirectory()
    numbers = iter(range(100))
    groups = [[commit(next(numbers)) for _ in range(size)] for size in sizes]
    master = Master(directory, sync=True)
    ends = []
    history: list[Sequence[Operation]] = [BEGIN, *groups]
    for group in history:
        master.apply_all(group)
        ends.append(len(directory.inodes["log-0000000000000001"].data))
    master.close()
    size = data.draw(st.integers(FILE_SIZE, ends[-1]))
    directory.inodes["log-0000000000000001"] = Inode(directory.inodes["log-0000000000000001"].data[:size])
    whole = sum(end <= size for end in ends)
    expected = [each for group in history[:whole] for each in group]
    assert recover(directory).registry == registry_after(expected)
    assert len(directory.inodes["log-0000000000000001"].data) == (ends[whole - 1] if whole else FILE_SIZE)


def test_a_torn_tail_is_cut_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    directory = SimulatedDirectory()
    live(directory, [BEGIN, [commit(1)]])
    inode = directory.inodes["log-0000000000000001"]
    size = len(inode.data)
    inode.data += b"\x30\0\0\0half"
    with caplog.at_level(logging.WARNING):
        assert recover(directory).registry == registry_after([*BEGIN, commit(1)])
    assert f"log-0000000000000001: cut 8 bytes of an unfinished frame at offset {size}" in caplog.text


def flip(directory: SimulatedDirectory, name: str, offset: int) -> None:
    directory.inodes[name].data[offset] ^= 16


def with_two_snapshots() -> tuple[SimulatedDirectory, Registry]:
    directory = SimulatedDirectory()
    live(directory, [BEGIN, [commit(1)], SNAPSHOT, [commit(2)], SNAPSHOT, [commit(3)]])
    return directory, registry_after([*BEGIN, commit(1), commit(2), commit(3)])


def test_the_snapshot_before_the_newest_is_kept_with_the_log_after_it_and_no_more() -> None:
    directory = SimulatedDirectory()
    live(directory, [BEGIN, SNAPSHOT])
    assert directory.names() == ["log-0000000000000001", "log-0000000000000004", "snapshot-0000000000000003"]
    directory, _ = with_two_snapshots()
    assert directory.names() == [
        "log-0000000000000005",
        "log-0000000000000006",
        "snapshot-0000000000000004",
        "snapshot-0000000000000005",
    ]


def test_a_flipped_bit_in_the_newest_snapshot_is_named_and_the_one_before_it_stands_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, expected = with_two_snapshots()
    for offset in range(len(whole.inodes["snapshot-0000000000000005"].data)):
        directory, _ = with_two_snapshots()
        flip(directory, "snapshot-0000000000000005", offset)
        caplog.clear()
        assert recover(directory).registry == expected
        assert "/simulated/snapshot-0000000000000005 is damaged at offset" in caplog.text
        assert "damaged-snapshot-0000000000000005" in directory.names()
        assert recover(directory).registry == expected


def test_a_damaged_first_snapshot_is_replaced_by_the_log_from_the_beginning() -> None:
    directory = SimulatedDirectory()
    live(directory, [BEGIN, [commit(1)], SNAPSHOT, [commit(2)]])
    flip(directory, "snapshot-0000000000000004", 40)
    assert recover(directory).registry == registry_after([*BEGIN, commit(1), commit(2)])


def test_when_every_snapshot_is_damaged_the_newest_is_named_each_time() -> None:
    directory, _ = with_two_snapshots()
    for name in ("snapshot-0000000000000004", "snapshot-0000000000000005"):
        flip(directory, name, 40)
    for _ in range(2):
        with pytest.raises(DamagedFile, match=r"snapshot-0000000000000005 is damaged at offset 28") as caught:
            Master(directory)
        assert "put back an undamaged copy of the file" in caught.value.remedy


def test_a_flipped_bit_anywhere_in_the_log_is_named_and_nothing_is_served() -> None:
    whole, _ = with_two_snapshots()
    name = "log-0000000000000006"
    for offset in range(len(whole.inodes[name].data)):
        directory, _ = with_two_snapshots()
        flip(directory, name, offset)
        with pytest.raises(DamagedFile, match=f"/simulated/{name} is damaged at offset (0|28):"):
            Master(directory)


def test_a_missing_log_is_noticed() -> None:
    directory, _ = with_two_snapshots()
    live(directory, [[commit(4)]])
    del directory.inodes["log-0000000000000006"]
    with pytest.raises(StorageFailed, match=r"operations 6 to 6 are missing before /simulated/log-0000000000000007"):
        Master(directory)


def test_a_log_that_ends_within_a_frame_with_another_behind_it_is_damaged() -> None:
    directory, _ = with_two_snapshots()
    live(directory, [[commit(4)]])
    del directory.inodes["log-0000000000000006"].data[-3:]
    with pytest.raises(DamagedFile, match=r"log-0000000000000006 .* yet another log follows"):
        Master(directory)


def test_a_file_under_another_ones_name_is_refused() -> None:
    directory, _ = with_two_snapshots()
    directory.inodes["log-0000000000000006"] = directory.inodes["log-0000000000000005"]
    with pytest.raises(DamagedFile, match="it is the log from operation 5 on"):
        Master(directory)
    directory, expected = with_two_snapshots()
    directory.inodes["snapshot-0000000000000005"] = directory.inodes["snapshot-0000000000000004"]
    assert recover(directory).registry == expected


def test_the_files_of_an_earlier_format_are_refused_and_left_alone() -> None:
    directory = SimulatedDirectory()
    directory.inodes["registry.journal"] = Inode(bytearray(b"{}"))
    with pytest.raises(InvalidArgument, match=r"registry\.journal is in a format that this release does not read"):
        Master(directory)
    assert directory.names() == ["registry.journal"]


def test_unfinished_files_are_removed() -> None:
    directory, expected = with_two_snapshots()
    directory.inodes["snapshot-0000000000000009.new"] = Inode(bytearray(b"half"))
    assert recover(directory).registry == expected
    assert "snapshot-0000000000000009.new" not in directory.names()


def test_the_epoch_rises_with_every_start_and_survives_snapshots() -> None:
    directory = SimulatedDirectory()
    epochs = []
    for n in range(6):
        master = Master(directory, sync=True)
        epochs.append(master.epoch)
        master.apply_all([*BEGIN, commit(n)])
        if n % 2:
            master.materialize()
        master.close()
        directory = directory.after_power_cut()
    assert epochs == sorted(set(epochs))
