"""deploy/monitoring is what the generator writes, and names only metrics that a server exposes."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
import yaml

from shuffle_server.observe import families
from tools import monitoring
from tools.alert_rules import rules, series
from tools.monitoring import CHART_RULES, DIRECTORY, cluster, documents, workers

DOCUMENTS = documents()
BOARDS = [name for name in DOCUMENTS if name.endswith(".json")]
OF_THE_PROCESS = {"process_open_fds", "process_max_fds"}


def exposed() -> dict[str, set[str]]:
    """Each series' name with its labels, as a server exposes them."""
    names = {family.name: set(family.labels) for family in families.ALL}
    for family in families.ALL:
        if family.kind == "histogram":
            names |= {family.name + suffix: {*family.labels, "le"} for suffix in ("_bucket", "_sum", "_count")}
    return names


def panels(name: str) -> list[dict[str, Any]]:
    """Every panel of a board, rows and those in them."""
    found: list[dict[str, Any]] = json.loads(DOCUMENTS[name])["panels"]
    return [*found, *itertools.chain.from_iterable(each.get("panels", []) for each in found)]


def expressions() -> list[str]:
    drawn = [target["expr"] for name in BOARDS for panel in panels(name) for target in panel.get("targets", [])]
    return [*drawn, *(rule.expr for rule in rules())]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_equal_the_code(name: str) -> None:
    assert (DIRECTORY / name).read_text() == DOCUMENTS[name], "run scripts/generate-monitoring and commit"


def test_the_charts_copy_of_the_rules_is_the_same() -> None:
    assert CHART_RULES.read_text() == DOCUMENTS["alerts.yaml"], "run scripts/generate-monitoring and commit"


def test_expressions_name_only_metrics_and_labels_that_exist() -> None:
    known, seen = exposed(), set()
    for expr in expressions():
        used = re.findall(r"\b((?:flight_shuffle|process)_\w+)(?:\{([^}]*)\})?", expr)
        assert used or expr.startswith("up{"), expr
        for name, matchers in used:
            assert name in known or name in OF_THE_PROCESS, name
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= known.get(name, set()) | {"job", "instance"}, expr
            seen.add(name)
    shown = {name for name in known if any(name == each or f"{name}_bucket" == each for each in seen)}
    # What no panel shows: the version, and what histograms expose beside their buckets.
    assert {family.name for family in families.ALL} - shown == {families.BUILD.name}


def test_a_metric_label_or_value_that_is_not_there_cannot_be_named() -> None:
    assert series(families.REFUSALS, code="STORAGE_FULL") == 'flight_shuffle_refusals_total{code="STORAGE_FULL"}'
    with pytest.raises(ValueError, match="code=STORAGE_FUL"):
        series(families.REFUSALS, code="STORAGE_FULL|STORAGE_FUL")
    with pytest.raises(ValueError, match="path=/data"):
        series(families.READY, path="/data")


def test_a_family_without_a_panel_of_its_own_gets_one() -> None:
    drawn = {family.name for row in [*cluster(), *workers()] for panel in row.panels for family in panel.shows}
    added = [panel.shows[0].name for panel in monitoring.rest([*cluster(), *workers()])]
    assert sorted([*drawn, *added]) == sorted(family.name for family in families.ALL)


@pytest.mark.parametrize("name", BOARDS)
def test_boards_can_be_taken_in_by_any_grafana(name: str) -> None:
    numbers = [panel["id"] for panel in panels(name)]
    assert len(set(numbers)) == len(numbers)
    for panel in panels(name):
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == monitoring.DATASOURCE, "its data source is the variable"
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert all(legends), panel["title"]
        assert len(set(legends)) == len(legends), panel["title"]
        for target in panel["targets"]:
            assert "rate(" not in target["expr"] or "[$__rate_interval]" in target["expr"]


@pytest.mark.parametrize("name", BOARDS)
def test_boards_keep_the_rules_of_grafanas_linter(name: str) -> None:
    """Those of github.com/grafana/dashboard-linter, which scripts/lint-deploy runs."""
    board = json.loads(DOCUMENTS[name])
    assert not board["editable"], "a board from a file is changed there"
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    for label in ("job", "instance"):
        assert variables[label]["datasource"] == monitoring.DATASOURCE
        assert (variables[label]["multi"], variables[label]["allValue"], variables[label]["refresh"]) == (True, ".+", 2)
    counters = {family.name for family in families.ALL if family.kind == "counter"}
    for panel in panels(name):
        for target in panel.get("targets", []):
            assert target["datasource"] == monitoring.DATASOURCE
            for metric, matchers in re.findall(r"\b((?:flight_shuffle|process)_\w+)\{([^}]*)\}", target["expr"]):
                assert 'job=~"$job"' in matchers, target["expr"]
                assert 'instance=~"$instance"' in matchers, target["expr"]
                if metric in counters:
                    assert re.search(rf"(?:rate|increase)\({metric}\{{", target["expr"]), target["expr"]


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DOCUMENTS[name])["panels"]:
        grid = panel["gridPos"]
        cells = set(itertools.product(range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])))
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < monitoring.ACROSS
        taken |= cells


def test_every_alert_says_what_to_do_and_how_bad_it_is() -> None:
    [group] = yaml.safe_load(DOCUMENTS["alerts.yaml"])["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) >= 15
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
