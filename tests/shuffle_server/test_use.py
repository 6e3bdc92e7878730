"""What is in use stays on the disk: also when it is read without asking."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from shuffle_api.ids import ShuffleId
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC
from tests.shuffle_server.test_object_store import write


def test_who_reads_files_without_asking_keeps_them_here_by_telling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("shuffle_server.store.store.time", SimpleNamespace(monotonic=lambda: now))
    store = Store(tmp_path / "data", tier=ObjectStore(f"file://{tmp_path}/cold", "w"))
    write(store, 0)
    now += 100
    store.use(SPEC.id)
    store.use(ShuffleId("app", 4711))  # of which nothing is here
    assert store.evict_cold(50) == 0
    now += 100
    assert store.evict_cold(50) == 1
