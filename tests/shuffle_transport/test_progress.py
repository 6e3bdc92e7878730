"""Bars of commands that take long: at a terminal only, below what is printed, and gone in the end."""

from __future__ import annotations

import io
import sys

import pytest

from shuffle_transport.progress import ERASE, Progress, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of standard error. Not a fixture: pytest's capture replaces standard error after those."""
    monkeypatch.setenv("COLUMNS", "100")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def last_drawn(terminal: Terminal) -> str:
    return terminal.getvalue().rpartition("\r")[2]


def test_it_shows_how_far_a_command_is_and_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch)
    with Progress("copying") as progress:
        assert progress.is_shown
        progress.at(0, 0, "asking")
        assert "0%" in last_drawn(terminal)
        progress.at(50, 100, "w-1: 7 map outputs")
        assert "copying  [##########" in last_drawn(terminal)
        assert "50%" in last_drawn(terminal)
        assert "w-1: 7 map outputs" in last_drawn(terminal)
        progress.at(40, 100, "more has come")  # it does not go back
        assert "50%" in last_drawn(terminal)
        progress.at(200, 100)
        assert "99%" in last_drawn(terminal)
    assert terminal.getvalue().endswith(f"{ERASE}\x1b[?25h")


def test_the_time_that_is_left_is_shown_once_it_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch)
    now = 1000.0
    monkeypatch.setattr("shuffle_transport.progress.time.monotonic", lambda: now)
    with Progress("copying") as progress:
        now += 3.0
        progress.at(1, 1000, "w-1")  # click would say 50 minutes
        assert "left" not in last_drawn(terminal)
        assert ":" not in last_drawn(terminal)
        progress.at(250, 1000, "w-1")
        assert "9 s left  w-1" in last_drawn(terminal)


def test_lines_stand_above_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = at_a_terminal(monkeypatch)
    with Progress("copying") as progress:
        progress.at(1, 4, "here")
        Progress.above("w-1: lost one")
        say("half of it")
    assert capsys.readouterr().out == "w-1: lost one\n"
    before, after = terminal.getvalue().split(f"{ERASE}half of it\n")
    assert before.count("25%") == 2  # drawn again after the first line
    assert "25%" in after


def test_a_text_from_outside_cannot_play_with_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = at_a_terminal(monkeypatch)
    with Progress("x") as progress:
        progress.at(1, 2, "a\nb\x1b[31m" + "c" * 500)
    assert "\n" not in terminal.getvalue()
    assert "\x1b[31m" not in terminal.getvalue()
    assert "c" * 60 not in terminal.getvalue()


@pytest.mark.parametrize("hidden", [False, True])
def test_nothing_is_shown_without_a_terminal_or_if_hidden(hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if hidden else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("copying", hidden=hidden) as progress:
        assert not progress.is_shown
        progress.at(1, 2, "here")
    assert stream.getvalue() == ""
