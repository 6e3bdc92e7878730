"""Each block of code in the README and in docs/ is run by a test that is named here, or stands here with the reason why
not. Whatever can be checked without running it is: command lines, TOML, imports of Python."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from shuffle_server.cli import program
from shuffle_server.cli.roles import ROLES, options_from
from tests.documents import PAGES, ROOT, Block, block, blocks

SHELL = ("sh", "console")
OTHERS = ("python", "toml", "properties", "java", "dockerfile")
PICTURES = ("mermaid", "text")

APART = "tests/deploy/test_apart.py::"
API = "tests/shuffle_api/test_docs.py::test_program_runs"
CLUSTER = "needs Kubernetes, YARN or a cluster of Spark"
CONTAINERS = "needs a container daemon or Kubernetes; tests/deploy/test_deploy.py reads the files"
DATABASE = "needs a database by that name; tests/shuffle_server/test_standby.py runs such masters"
DOWNLOADS = "downloads what is not installed for the tests"
ROOT_ONLY = "changes the machine: a user, /etc, units of systemd; tests/deploy/test_deploy.py reads the files"
FRAGMENT = "a part of a program, without its objects"
SIMULATION = "takes minutes; tests run parts of it by its functions"
SPARK = "settings, which tests give to Spark one by one"

RUN = {
    ("README.md", "pip wheel"): "tests/deploy/test_quickstart.py::wheel",
    ("README.md", "/tmp/shuffle"): APART + "test_a_server_is_ready_at_the_ports_of_the_documents",
    ("README.md", "SparkSession"): "tests/house/test_readme.py::test_pyspark_program_shuffles_through_the_server",
    ("README.md", "open_plugin"): "tests/house/test_readme.py::test_python_program_counts_the_words",
    ("README.md", "flight-shuffle master"): APART + "test_a_master_and_its_workers",
    ("docs/api.md", "word-count-1"): API,
    ("docs/api.md", "sales-1"): API,
    ("docs/api.md", "ProcessPoolExecutor"): "tests/flight_shuffle/test_recipe.py::test_the_program_for_process_pools",
    ("docs/api.md", "DaskShuffles"): "tests/flight_shuffle/test_dask.py::test_the_program_of_the_document",
    ("docs/api.md", "events-1"): API,
    ("docs/api.md", "word-count-2"): API,
    ("docs/api.md", "failover_scope"): API,
    ("docs/cluster.md", "--listen 10.0.0.1:9110"): APART + "test_a_master_and_a_worker_on_two_hosts",
    ("docs/cluster.md", "--label"): APART + "test_workers_have_the_labels_of_the_documents",
    ("docs/cluster.md", "flight-shuffle drain"): APART + "test_a_master_and_a_worker_on_two_hosts",
    ("docs/cluster.md", "--master $masters"): APART + "test_workers_join_both_registries",
    ("docs/exactly-once.md", "exactly_once.py"): "tests/flight_shuffle/test_exactly_once.py::",
    ("docs/hybrid.md", "HybridShuffle"): "tests/shuffle_plugins/hybrid/test_docs.py::test_documented_program",
    ("docs/operations.md", "--http-listen 0.0.0.0"): APART + "test_a_server_is_ready_at_the_ports_of_the_documents",
    ("docs/operations.md", "app_timeout"): "tests/house/test_document_blocks.py::test_the_options_file_is_read",
    ("docs/pipelined.md", "ConsumerGroup("): "tests/shuffle_plugins/pipelined/test_consumer_group.py::test_program_of",
    ("docs/pipelined.md", "Captured"): "tests/shuffle_plugins/pipelined/test_consumer_group.py::test_first_program_of",
    ("docs/pipelined.md", "--advertise relay"): APART + "test_a_server_is_ready_at_the_ports_of_the_documents",
    ("docs/plugin.md", "ShufflePluginTests"): API,
    ("docs/plugin.md", "Registry()"): API,
    ("docs/quickstart.md", "pip install"): "tests/deploy/test_quickstart.py::test_three_commands",
    ("docs/quickstart.md", "SparkSession"): "tests/deploy/test_quickstart.py::test_three_commands",
    ("docs/quickstart.md", "python job.py"): "tests/deploy/test_quickstart.py::test_three_commands",
    ("docs/security.md", "openssl req"): APART + "test_five_commands_set_a_secure_server_up",
    ("docs/security.md", "--token-file worker.token"): APART + "test_a_worker_joins_with_its_token_alone",
    ("docs/spark.md", "flight-shuffle server"): APART + "test_the_two_commands_of_the_spark_page",
    ("docs/spark.md", "9110     #"): APART + "test_the_two_commands_of_the_spark_page",
    ("docs/spark.md", "FlightShuffleDataIO"): "tests/spark/test_docs.py::test_settings_are_what_the_command_prints",
    ("docs/spark.md", "FallbackRule"): "tests/spark/test_fallback_rule.py::",
}
"""(page, a text of the block): the test, or how its name begins."""

NOT_RUN = {
    ("docs/api.md", "RayShuffles"): DOWNLOADS + ": scripts/ray-tests",
    ("docs/cluster.md", "plugin.watch"): FRAGMENT + "; tests/shuffle_server/test_watch.py",
    ("docs/deploy.md", "docker compose"): CONTAINERS,
    ("docs/deploy.md", "helm install"): CONTAINERS,
    ("docs/deploy.md", "useradd"): ROOT_ONLY,
    ("docs/faults.md", "tests.faults.explore"): SIMULATION,
    ("docs/model.md", "tests.model"): SIMULATION,
    ("docs/pipelined.md", '{"relay"'): FRAGMENT,
    ("docs/plugin.md", "[project.entry-points"): FRAGMENT + "; tests/third_party_plugin has such a file",
    (
        "docs/registry.md",
        "postgresql://",
    ): DATABASE,
    ("docs/security.md", "PipelinedShuffle"): FRAGMENT + "; tests/shuffle_plugins/pipelined has such programs",
    ("docs/spark.md", "--master spark://"): CLUSTER + "; tests/spark/test_standalone.py runs a standalone cluster",
    ("docs/spark.md", "--master yarn"): CLUSTER,
    ("docs/spark.md", "--master k8s"): CLUSTER,
    ("docs/spark.md", "FROM my-spark"): CLUSTER,
    ("docs/spark.md", "dynamicAllocation"): SPARK + ": tests/spark/test_executors_leave.py",
    ("docs/spark.md", "FlightPipelinedShuffleManager"): SPARK + ": tests/spark/test_real_time.py",
}

ALL = [each for page in PAGES for each in blocks(page)]
CODE = [each for each in ALL if each.language not in PICTURES]
EXAMPLES = {
    "HOST:PORT": "10.0.0.1:9110",
    "SECONDS": "60",
    "SHELL": "bash",
    "$id": "w-1",
}
"""Values for words such as HOST:PORT."""
NEEDED = {"data_dir": ("--data-dir", "/data"), "master": ("--master", "10.0.0.1:9110")}
"""Options for the `...` of a command that serves."""


def named(each: Block) -> str:
    return f"{each.page}:{each.line}"


def of_block(each: Block, table: Mapping[tuple[str, str], str]) -> list[str]:
    return [table[page, text] for page, text in table if page == each.page and text in each.text]


@pytest.mark.parametrize("each", ALL, ids=named)
def test_a_block_names_its_language(each: Block) -> None:
    assert each.language in (*SHELL, *OTHERS, *PICTURES), "what is neither code nor settings is `text`"


@pytest.mark.parametrize("each", CODE, ids=named)
def test_a_block_is_run_by_a_test_or_listed_with_the_reason_why_not(each: Block) -> None:
    found = of_block(each, RUN) + of_block(each, NOT_RUN)
    assert len(found) == 1, f"name the test that runs it in RUN, or why none does in NOT_RUN:\n{each.text}"


def test_a_new_block_would_be_found() -> None:
    new = Block("docs/cluster.md", 1, "sh", "flight-shuffle status --server HOST:PORT")
    assert of_block(new, RUN | NOT_RUN) == []


@pytest.mark.parametrize(("page", "text"), [*RUN, *NOT_RUN])
def test_each_entry_is_of_one_block(page: str, text: str) -> None:
    assert text in block(page, text).text


@pytest.mark.parametrize(("page", "test"), sorted({(page, test) for (page, _), test in RUN.items()}))
def test_a_named_test_reads_the_page(page: str, test: str) -> None:
    path, _, name = test.partition("::")
    source = (ROOT / path).read_text()
    assert f"def {name}" in source
    assert Path(page).name in source


def shell_lines(text: str) -> Iterator[str]:
    """Each command of the lines of a shell block, those within `$(...)` first."""
    while inner := re.search(r"\$\(([^()]*)\)", text):
        yield from shell_lines(inner[1])
        text = text.replace(inner[0], "printed")
    yield from (part.strip(" ()") for part in re.split(r";|&&", text))


def own_commands(each: Block) -> Iterator[list[str]]:
    """The arguments of each `flight-shuffle` of a shell block."""
    variables = dict(EXAMPLES)
    for line in each.commands():
        if given := re.fullmatch(r"(\w+)=(\S+)", line):
            variables[f"${given[1]}"] = given[2]
        for command in shell_lines(line):
            words = shlex.split(re.sub(r" > \S+$", "", command))
            if words and Path(words[0]).name == "flight-shuffle":
                yield [variables.get(word, word) for word in words[1:]]


def inline_commands(page: str) -> Iterator[list[str]]:
    """Those within the text of a page."""
    text = (ROOT / page).read_text()
    for each in blocks(page):
        text = text.replace(each.text, "")
    for command in re.findall(r"`(?:venv/bin/)?flight-shuffle ([a-z][^`…]*)`", text):
        words = shlex.split(" ".join(command.split()))
        yield [EXAMPLES.get(word, word) for word in words]


def parse(words: list[str]) -> None:
    """Has the program read its arguments, without running the command. Raises click.UsageError."""
    arguments, context = list(words), click.Context(program())
    command: click.Command = program()
    while isinstance(command, click.Group):
        name = arguments.pop(0) if arguments else ""
        found = command.get_command(context, name)
        assert found is not None, f"{name!r} is no command of {command.name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    if "..." in arguments:
        arguments = [word for word in arguments if word != "..."]
        for option, given in NEEDED.items():
            takes = any(parameter.name == option for parameter in command.params)
            if takes and given[0] not in arguments:
                arguments += given
    assert context.parent is not None
    with command.make_context(str(command.name), arguments, parent=context.parent) as made:
        if command.name in ROLES:
            options_from(str(command.name), made)


COMMANDS = [
    pytest.param(words, id=f"{page}-{' '.join(words)}"[:100])
    for page in PAGES
    for words in (
        *inline_commands(page),
        *(words for each in blocks(page) if each.language in SHELL for words in own_commands(each)),
    )
]


def test_commands_are_found() -> None:
    assert len(COMMANDS) >= 40


@pytest.mark.parametrize("words", COMMANDS)
def test_the_program_takes_a_command_of_the_documents(words: list[str]) -> None:
    if len(words) > 1:
        parse(words)
    else:  # the name of a command alone
        assert words[0] in program().commands


@pytest.mark.parametrize("words", [["status", "--servers", "h:1"], ["server", "/data", "--memory", "1x"], ["stat"]])
def test_a_wrong_command_would_be_found(words: list[str]) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(words)


@pytest.mark.parametrize("each", [each for each in CODE if each.language == "toml"], ids=named)
def test_toml_is_well_formed(each: Block) -> None:
    assert tomllib.loads(each.text)


def test_the_options_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(block("docs/operations.md", "app_timeout").text)
    worker, master = (program().commands[name] for name in ("worker", "master"))
    above = click.Context(program())
    with worker.make_context("worker", ["--config", str(path), "--master", "h:9110"], parent=above) as context:
        assert options_from("worker", context).data_dir == "/data1,/data2"
    with master.make_context("master", ["--config", str(path), "/data"], parent=above) as context:
        assert options_from("master", context).app_timeout == 15 * 60


@pytest.mark.parametrize("each", [each for each in CODE if each.language == "python"], ids=named)
def test_python_imports_what_there_is_by_the_names_of_the_distribution(each: Block) -> None:
    own = set()
    for node in ast.walk(ast.parse(each.text)):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            if node.module == "flight_shuffle.ray":
                continue  # needs Ray
            module = importlib.import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert missing == [], node.module
            own.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            assert all(importlib.util.find_spec(name.name) for name in node.names)
    if each.page != "docs/plugin.md":  # for authors of plugins, which import the API alone
        assert {name for name in own if name.startswith("shuffle_")} == set()


@pytest.mark.parametrize("each", [each for each in CODE if "python -m tests." in each.text], ids=named)
def test_programs_of_the_tests_have_the_options_of_the_documents(each: Block) -> None:
    commands = [shlex.split(line) for line in each.commands()]
    for program_ in {command[2] for command in commands}:
        asked = [sys.executable, "-m", program_, "--help"]
        helped = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=240, check=True).stdout
        options = {word for command in commands if command[2] == program_ for word in command if word[:2] == "--"}
        assert options <= set(re.findall(r"--[a-z-]+", helped)), program_
