"""The other process starts, says where it listens, and is gone afterwards."""

import os
from pathlib import Path

import pytest

from shuffle_api.errors import InternalError
from shuffle_transport.bench.child import PeerProcess


def test_a_peer_is_gone_after_its_block() -> None:
    with PeerProcess(64 << 20) as peer:
        assert set(peer.ports) == {"tcp", "raw", "remote", "credit"}  # who names none
        assert Path(f"/proc/{peer.pid}").exists()
    assert not Path(f"/proc/{peer.pid}").exists()
    peer.close()


def test_a_peer_is_ended_when_the_block_fails() -> None:
    with pytest.raises(RuntimeError, match="of the test"), PeerProcess(64 << 20) as peer:
        raise RuntimeError("of the test")
    with pytest.raises(ProcessLookupError):
        os.kill(peer.pid, 0)


def test_a_peer_that_does_not_start_says_why() -> None:
    with pytest.raises(InternalError, match=r"(?s)a pool of 0 bytes.*python -m shuffle_transport.bench.peer"):
        PeerProcess(0)
