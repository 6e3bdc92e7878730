"""Outputs that are on their way between the disks and the object store when something else happens to them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shuffle_api.errors import MapOutputLost, Overloaded, StorageFailed
from shuffle_api.ids import MapAttempt
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block

OLD, NEW = MapAttempt(0, 0), MapAttempt(0, 1)


def open_store(root: Path) -> Store:
    return Store(root / "worker", tier=ObjectStore(f"file://{root}/tier", "w-1"))


def commit(store: Store, output: MapAttempt) -> None:
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, output, "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(1, b"%d" % output.attempt)]))
    assert store.publish(writer, turn) is not None


def test_an_output_that_comes_back_after_its_removal_does_not_touch_the_next_attempts_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    list(store.recover())
    commit(store, OLD)
    assert store.evict_cold(0) == 1
    real: Callable[..., Any] = ObjectStore.get

    def slow(*arguments: Any) -> Any:
        found = real(*arguments)
        store.remove_output(SPEC.id, OLD)
        commit(store, NEW)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "get", slow)
        with pytest.raises(MapOutputLost, match="the worker holds attempt 1"):
            store.open_output(SPEC.id, OLD)
    os.close(store.open_output(SPEC.id, NEW)[1])
    assert [path.name for path in (tmp_path / "worker").rglob("*.out")] == ["0.1.out"]
    store.close()


@pytest.mark.parametrize(("number", "refused"), [(errno.EMFILE, Overloaded), (errno.EIO, StorageFailed)])
def test_a_stub_that_cannot_be_read_for_a_moment_costs_no_output(
    number: int, refused: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    list(store.recover())
    commit(store, OLD)
    store.evict_cold(0)
    store.close()

    def fail(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        store = open_store(tmp_path)
        with pytest.raises(refused, match="0.0.away"):
            list(store.recover())
        store.close()
    store = open_store(tmp_path)
    assert [found.output for found in store.recover()] == [OLD]
    os.close(store.open_output(SPEC.id, OLD)[1])
    store.close()


def test_a_spare_file_that_cannot_be_deleted_is_deleted_with_a_later_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 20))
    commit(store, OLD)
    store.remove_shuffle(SPEC.id)
    assert list((tmp_path / "spares").rglob("[0-9]*"))

    def fail(path: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", fail)
        store.remove_app(SPEC.id.app)
    store.look()
    assert not [path for path in (tmp_path / "spares").rglob("*") if path.is_file()]
    store.close()
