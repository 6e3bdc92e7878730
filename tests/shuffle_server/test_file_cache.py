"""Files that stay open from one pull to the next: each is opened once, and none is served that is not held any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store import file_cache as kept_module
from shuffle_server.store.file_cache import OpenOutput
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block, open_files
from tests.shuffle_server.test_fetch_handler import pull

OUTPUTS = [MapAttempt(map_id, 0) for map_id in range(3)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_module, "KEPT_SECONDS", 3600.0)
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Store:
    store = Store(root)
    for output in OUTPUTS:
        write(store, output)
    return store


def write(store: Store, output: MapAttempt) -> None:
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, output, "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(0, b"%d.%d" % (output.map, output.attempt))]))
    assert store.publish(writer, turn) is not None


def served(store: Store, *outputs: MapAttempt) -> list[bytes | type[Exception]]:
    """The payload of each, in order, then the errors."""
    blocks, errors, _ = pull(store, [OutputRange(output, 0, 8) for output in outputs])
    return [*(payload for _, _, payload in blocks), *(type(error) for error in errors)]


def test_a_file_is_opened_once_for_many_pulls(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[MapAttempt] = []
    opens = store.open_cached

    def noted(shuffle: ShuffleId, output: MapAttempt) -> OpenOutput:
        opened.append(output)
        return opens(shuffle, output)

    monkeypatch.setattr(store, "open_cached", noted)
    for _ in range(3):
        assert served(store, *OUTPUTS) == [b"0.0", b"1.0", b"2.0"]
    assert opened == OUTPUTS
    assert open_files(root) == ["0.0.out", "1.0.out", "2.0.out"]
    store.close()
    assert open_files(root) == []


@pytest.mark.parametrize(
    ("remove", "left"),
    [
        (lambda store: store.remove_output(SPEC.id, OUTPUTS[1]), ["0.0.out", "2.0.out"]),
        (lambda store: store.remove_shuffle(SPEC.id), []),
        (lambda store: store.remove_app(SPEC.id.app), []),
    ],
    ids=["output", "shuffle", "app"],
)
def test_what_is_removed_is_closed_and_not_served(
    store: Store, root: Path, remove: Callable[[Store], None], left: list[str]
) -> None:
    served(store, *OUTPUTS)
    remove(store)
    assert open_files(root) == left
    assert served(store, OUTPUTS[1]) == [MapOutputLost]


def test_another_attempt_is_served_and_the_one_before_is_not(store: Store) -> None:
    again = MapAttempt(1, 1)
    served(store, *OUTPUTS)
    assert served(store, again) == [MapOutputLost]
    store.remove_output(SPEC.id, OUTPUTS[1])
    write(store, again)
    assert served(store, again) == [b"1.1"]
    assert served(store, OUTPUTS[1]) == [MapOutputLost]


def test_a_shuffle_that_is_registered_again_has_nothing_of_the_one_before(store: Store) -> None:
    served(store, *OUTPUTS)
    store.remove_shuffle(SPEC.id)
    store.add_shuffle(SPEC.id)
    assert served(store, OUTPUTS[0]) == [MapOutputLost]


def test_who_is_reading_when_an_output_is_removed_goes_on(store: Store, root: Path) -> None:
    opened: OpenOutput | None = store.open_cached(SPEC.id, OUTPUTS[0])
    assert opened is not None
    store.remove_shuffle(SPEC.id)
    assert os.pread(opened.fd, 3, 0) == b"0.0"
    opened = None
    assert open_files(root) == []


def test_an_output_that_is_removed_while_it_is_opened_is_not_kept(store: Store, root: Path) -> None:
    opens = store._open

    def removed_meanwhile(*arguments: object) -> object:
        opened = opens(*arguments)  # type: ignore[arg-type]
        store.remove_output(SPEC.id, OUTPUTS[0])
        return opened

    store._open = removed_meanwhile  # type: ignore[method-assign,assignment]
    store.open_cached(SPEC.id, OUTPUTS[0])
    assert open_files(root) == []


def test_what_moved_to_the_object_store_is_closed_and_read_from_there(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    store = Store(root, tier=ObjectStore(f"file://{tmp_path / 'tier'}", "w"))
    list(store.recover())
    write(store, OUTPUTS[0])
    assert served(store, OUTPUTS[0]) == [b"0.0"]
    assert store.evict_cold(0) == 1
    assert open_files(root) == []
    assert served(store, OUTPUTS[0]) == [b"0.0"]


def test_descriptors_are_bounded_and_what_is_not_kept_is_served(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_module, "MOST_KEPT", 2)
    for _ in range(2):
        assert served(store, *OUTPUTS) == [b"0.0", b"1.0", b"2.0"]
        assert open_files(root) == ["0.0.out", "1.0.out"]
    store.remove_output(SPEC.id, OUTPUTS[0])
    served(store, *OUTPUTS[1:])
    assert open_files(root) == ["1.0.out", "2.0.out"]


def test_after_a_while_a_file_is_opened_again_and_closed_if_nobody_asks(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(store, *OUTPUTS)
    (root / "apps/app/3.0/1.0.out").unlink()
    store.close_idle()
    assert len(open_files(root)) == 3
    monkeypatch.setattr(kept_module, "KEPT_SECONDS", 0.0)
    assert served(store, *OUTPUTS) == [b"0.0", b"2.0", MapOutputLost]
    store.close_idle()
    assert open_files(root) == []
