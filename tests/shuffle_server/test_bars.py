"""Commands that take long show at a terminal how far they are, and nowhere else."""

from __future__ import annotations

import io
import json
import sys

import pytest

from bench.harness.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.cli import main
from shuffle_server.cli.drain import _drain
from shuffle_server.proto import registry_pb2 as pb
from tests.shuffle_server.helpers import write_map
from tests.shuffle_transport.test_progress import Terminal

LONG = {
    "demo": ("demo",),
    "doctor": ("doctor",),
    "scrub": ("scrub",),
    "bench cluster": ("bench", "cluster", "--size", "1m", "--streams", "2"),
}


@pytest.mark.parametrize("command", LONG)
def test_a_bar_is_shown_at_a_terminal_unless_the_output_is_json(
    command: str,
    server: ServerProcess,
    plugin: RemoteShuffle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = (*LONG[command], "--server", server.control)
    with plugin.master("app") as master:
        write_map(plugin, master.register_shuffle(8, 1), 0)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        main(arguments)
        assert "%" in terminal.getvalue()
        assert "{" not in terminal.getvalue()
        assert "%" not in capsys.readouterr().out
        quiet = Terminal()
        monkeypatch.setattr(sys, "stderr", quiet)
        main((*arguments, "--json"))
        assert quiet.getvalue() == ""
        json.loads(capsys.readouterr().out)


class Draining:
    """A master whose worker has so many bytes left at each look, and leaves then."""

    def __init__(self, *left: int) -> None:
        self._replies = [pb.DrainReply(outputs=each, bytes=each, others=1) for each in left]
        self._replies.append(pb.DrainReply(left=True))

    def call(self, method: str, request: pb.DrainRequest) -> pb.DrainReply:
        return self._replies.pop(0)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_drain_shows_what_is_left(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys.modules["shuffle_server.cli.drain"], "LOOK_SECONDS", 0.0)
    _drain(Draining(100, 75, 50), "w-1", False, 60.0)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "w-1: has left\n"
    for shown in ("0%", "25%", "50%", "75 map outputs (75 B) to migrate"):
        assert (shown in stream.getvalue()) == terminal
