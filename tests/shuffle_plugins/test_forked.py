"""Tasks that are forked: before their process has used a plugin they work, afterwards they say what to do instead."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness.server import ServerProcess
from shuffle_api import open_plugin
from tests.processes import run_apart

# `forked` gives what became of a task of its own process. A task that hangs ends with status 1.
PROGRAM = """
import faulthandler, json, multiprocessing, os, pickle
from shuffle_api import MapAttempt, open_plugin
from shuffle_api.errors import ShuffleError

OPTIONS = json.loads(os.environ["OPTIONS"])
plugin = open_plugin(*OPTIONS)

def write(plugin, handle, map):
    with plugin.writer(handle, MapAttempt(map, 0)) as writer:
        writer.write(0, b"a record")
        writer.commit()

def task(plugin, handle, map, answers):
    faulthandler.dump_traceback_later(40, exit=True)
    try:
        write(plugin or open_plugin(*OPTIONS), handle, map)
        answers.put("committed")
    except ShuffleError as error:
        answers.put(f"{error.code.name}: {error}")

def forked(plugin, handle, map):
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=task, args=(plugin, handle, map, answers))
    process.start()
    process.join()
    return f"ended with {process.exitcode}" if answers.empty() else answers.get()
"""

BEFORE = """
handle = pickle.loads(bytes.fromhex(os.environ["HANDLE"]))
print(json.dumps([forked(inherited, handle, map) for map, inherited in enumerate((plugin, None))]))
"""

AFTERWARDS = """
with plugin, plugin.master("app") as master:
    handle = master.register_shuffle(1, 4)
    answers = [forked(inherited, handle, 0) for inherited in (plugin, None)]
    write(plugin, handle, 1)
    answers += [forked(inherited, handle, 2) for inherited in (plugin, None)]
    write(plugin, handle, 3)
    committed = [output.output.map for output in master.map_outputs(handle)]
print(json.dumps([answers, committed]))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log") as process:
        yield process


def outcome(program: str, plugin: str, options: dict[str, str], **variables: str) -> Any:
    return json.loads(run_apart(PROGRAM + program, OPTIONS=json.dumps([plugin, options]), **variables).stdout)


@pytest.mark.parametrize("hand_over", ["auto", "off"])
def test_tasks_that_are_forked_before_the_first_use_write(server: ServerProcess, hand_over: str) -> None:
    options = {"server": server.control, "hand_over": hand_over}
    with open_plugin("remote", options) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 2)
        answers = outcome(BEFORE, "remote", options, HANDLE=pickle.dumps(handle).hex())
        with plugin.reader(handle, range(1)) as reader:
            records = list(reader)
    assert answers == ["committed", "committed"]
    assert records == [(0, b"a record")] * 2


@pytest.mark.parametrize("plugin", ["remote", "pipelined", "hybrid"])
def test_tasks_that_are_forked_afterwards_say_what_to_do_and_their_process_goes_on(
    server: ServerProcess, plugin: str
) -> None:
    answers, committed = outcome(AFTERWARDS, plugin, {} if plugin == "pipelined" else {"server": server.control})
    assert len(answers) == 4
    for answer in answers:
        assert answer.startswith("INVALID_ARGUMENT: process ")
        assert "which had used Flight Shuffle before" in answer
        assert "start processes with multiprocessing's 'spawn' or 'forkserver', or before the first use" in answer
    assert committed == [1, 3]
