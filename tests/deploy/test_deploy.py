"""What deploy/ holds is what the program takes: each command line, variable and file is read by the program itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from bench.harness.server import ServerProcess
from shuffle_api.options import environment_variable
from shuffle_server.cli import program
from shuffle_server.cli.roles import options_from
from shuffle_server.options import ServerOptions, data_listen
from shuffle_server.registry_names import parse_registries
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.security import NO_CREDENTIALS
from tests.certificates import make_party

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RENDERED = sorted((Path(__file__).parent / "rendered").glob("*.yaml"))
RELEASE = "shuffle-flight-shuffle-"
ROLES = ("server", "master", "worker")
PREFIX = environment_variable("")
OWN = re.compile(rf"\b{PREFIX}[A-Z_]+[A-Z]\b")


def started(arguments: Sequence[str], environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> ServerOptions:
    """The options of `flight-shuffle ARGUMENTS` with these variables, as the program reads them."""
    role, *rest = arguments
    for name in environment:
        monkeypatch.setenv(name, environment[name])
    with program().commands[role].make_context(role, rest, parent=click.Context(program())) as context:
        return options_from(role, context)


def image_environment() -> dict[str, str]:
    [block] = re.findall(r"^ENV (FLIGHT_SHUFFLE.*?[^\\])$", CONTAINERFILE, flags=re.MULTILINE | re.DOTALL)
    return dict(part.split("=", 1) for part in block.replace("\\\n", " ").split())


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Of the rendered charts: where, the StatefulSet, its container."""
    for path in RENDERED:
        for each in yaml.safe_load_all(path.read_text()):
            if each and each["kind"] == "StatefulSet":
                [container] = each["spec"]["template"]["spec"]["containers"]
                yield f"{path.stem}-{each['metadata']['name'].removeprefix(RELEASE)}", each, container


CONTAINERS = list(containers())


def files() -> list[Path]:
    """All files of deploy/ but the boards, which have no options."""
    return [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_every_option_and_variable_in_deploy_is_one_of_the_program() -> None:
    known = {"FLIGHT_SHUFFLE_SKIP_JAR", environment_variable("config"), "FLIGHT_SHUFFLE_SERVER"}
    spelled: set[str] = set()
    for command in program().commands.values():
        for option in (param for param in command.params if isinstance(param, click.Option)):
            spelled.update(option.opts)
            known.update(environment_variable(name[2:].replace("-", "_")) for name in option.opts if name[:2] == "--")
    named = {name for path in files() for name in OWN.findall(path.read_text())}
    assert len(named) >= 10
    assert named <= known
    mine = re.compile(r"(?:^|[\s\"'(\[])(--[a-z][a-z-]+)")
    ours = [*(DEPLOY / "helm").rglob("*.yaml"), *(DEPLOY / "helm").rglob("*.t*"), *UNITS]
    options = {option for path in ours for option in mine.findall(path.read_text())}
    kubectl = {"--namespace"}
    assert len(options) >= 8
    assert options - kubectl <= spelled


def test_the_image_starts_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r'^CMD (\["server".*\])$', CONTAINERFILE, flags=re.MULTILINE)
    options = started(json.loads(command), image_environment(), monkeypatch)
    ports = {options.listen, options.data_listen, options.http_listen}
    exposed = re.findall(r"^EXPOSE (.*)$", CONTAINERFILE, flags=re.MULTILINE)[0].split()
    assert {each.rpartition(":")[2] for each in ports} == set(exposed)
    assert options.data_dir in re.findall(r"^VOLUME (\S+)$", CONTAINERFILE, flags=re.MULTILINE)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_health_check_of_the_image_asks_a_server(tmp_path: Path, tls: bool) -> None:
    assert "COPY deploy/health.py /usr/local/lib/flight-shuffle-health.py" in CONTAINERFILE
    assert 'CMD ["python", "/usr/local/lib/flight-shuffle-health.py"]' in CONTAINERFILE
    asked, arguments = [sys.executable, str(DEPLOY / "health.py")], ["--http-listen", "127.0.0.1:0"]
    given: dict[str, str] = {}
    if tls:
        party = make_party(tmp_path / "tls")
        arguments += ["--tls-cert", str(party.cert), "--tls-key", str(party.key)]
        given = {"FLIGHT_SHUFFLE_TLS_CERT": str(party.cert)}
    keys = load_keyring(tls_ca=str(party.ca)).for_cluster() if tls else NO_CREDENTIALS
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys) as server:
        given = {**os.environ, **given, "FLIGHT_SHUFFLE_HTTP_LISTEN": server.metrics}
        assert subprocess.run(asked, env=given, timeout=240, check=False).returncode == 0
    gone = subprocess.run(asked, env=given, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert gone.returncode == 1
    assert gone.stderr.startswith("not well: ")


def test_what_the_image_is_built_from_is_there() -> None:
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    for line in ignored:
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
    lock = (ROOT / "requirements-dev.lock").read_text()
    [names] = re.findall(r"grep -E '\^\(([^)]*)\)==' requirements-dev.lock", CONTAINERFILE)
    for name in names.split("|"):
        assert re.search(rf"^{name}==", lock, flags=re.MULTILINE), name


@pytest.mark.parametrize("service", ["master", "worker-1", "worker-2", "worker-3"])
def test_compose_starts_the_cluster(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = COMPOSE["services"][service]
    environment = image_environment() | given.get("environment", {})
    options = started(given["command"], environment, monkeypatch)
    assert options.advertise == service, "others reach a container by its service's name"
    assert f"{service}:{options.data_dir}" in given["volumes"]
    assert set(COMPOSE["volumes"]) >= {service}
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text())["scrape_configs"]
    assert f"{service}:9112" in scraped[0]["static_configs"][0]["targets"]
    if service != "master":
        assert options.master == "master:9110"
        assert data_listen(options).port == 9111
        assert seconds(given["stop_grace_period"]) > options.drain > 0
        assert given["depends_on"]["master"] == {"condition": "service_healthy"}


def test_compose_publishes_to_this_machine_alone_and_mounts_what_is_there() -> None:
    for name, service in COMPOSE["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / "compose" / source).resolve().is_file(), volume


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_start_a_role_that_drains_on_stop(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"[A-Za-z]+=", line)]
    settings = dict(lines)
    environment = dict(value.split("=", 1) for name, value in lines if name == "Environment")
    environment["FLIGHT_SHUFFLE_CONFIG"] = str(DEPLOY / "systemd" / "config.toml")
    program_, *arguments = settings["ExecStart"].split()
    options = started(arguments, environment, monkeypatch)
    assert program_.endswith("/flight-shuffle")
    assert unit.stem == f"flight-shuffle-{arguments[0]}"
    assert options.data_dir.startswith(f"/var/lib/{settings['StateDirectory']}")
    assert settings["Type"] == "notify"
    assert settings["Restart"] == "on-failure"
    if arguments[0] == "worker":
        assert seconds(settings["TimeoutStopSec"]) > options.drain > 0


@pytest.mark.parametrize(("where", "given", "container"), CONTAINERS, ids=[where for where, *_ in CONTAINERS])
def test_the_chart_starts_pods_by_their_names(
    where: str, given: dict[str, Any], container: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, pod = given["metadata"], given["spec"]["template"]["spec"]
    first = f"{own['name']}-0"
    environment = image_environment()
    for variable in container["env"]:
        if OWN.fullmatch(variable["name"]):
            value = variable.get("value", "postgresql://user@host/database")
            environment[variable["name"]] = value.replace("$(POD_NAME)", first)
    options = started(container["args"], environment, monkeypatch)
    assert options.advertise == f"{first}.{given['spec']['serviceName']}.data.svc.cluster.local"
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for path in (options.data_dir, options.secret_file, options.tls_cert, options.tls_key, options.tls_ca):
        assert not path or any(path.startswith(mount) for mount in mounts), path
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["http"] == int(options.http_listen.rpartition(":")[2])
    if container["name"] == "worker":
        assert pods_of(options.master) == masters_of(where.partition("-")[0])
        assert pod["terminationGracePeriodSeconds"] > options.drain > 0
        assert ports["data"] == data_listen(options).port
    else:
        assert bool(options.metadata) == (given["spec"]["replicas"] > 1)
        masters = masters_of(where.partition("-")[0])
        assert first in masters[options.registry]
        assert not options.masters or pods_of(options.masters) == masters
        assert bool(options.masters) == (len(masters) > 1)
        assert ports["control"] == int(options.listen.rpartition(":")[2])


def masters_of(rendered: str) -> dict[str, list[str]]:
    """The pods of the masters of each registry, by the StatefulSets that make them."""
    found = {}
    for where, given, _ in CONTAINERS:
        name = given["metadata"]["name"]
        if where.startswith(f"{rendered}-master"):
            registry = name.removeprefix(f"{RELEASE}master").removeprefix("-")
            found[registry] = [f"{name}-{at}" for at in range(given["spec"]["replicas"])]
    return found


def pods_of(option: str) -> dict[str, list[str]]:
    """Those that `--master` or `--masters` names."""
    registries = parse_registries(option, "--masters")
    return {name: [each.split(".")[0] for each in pods.split(",")] for name, pods in registries.items()}


def test_the_secret_of_a_registry_s_database_has_a_key_of_its_own() -> None:
    keys = []
    for where, _, container in CONTAINERS:
        if where.startswith("registries-master"):
            [url] = [each for each in container["env"] if each["name"] == "FLIGHT_SHUFFLE_METADATA"]
            keys.append(url["valueFrom"]["secretKeyRef"]["key"])
    assert keys == ["url", "url-b"]


@pytest.mark.parametrize("container", [each for *_, each in CONTAINERS], ids=[where for where, *_ in CONTAINERS])
def test_probes_are_those_that_a_standby_passes(container: dict[str, Any]) -> None:
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}, "not /leader"
    schemes = {container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "readiness", "liveness")}
    tls = any(variable["name"] == "FLIGHT_SHUFFLE_TLS_CERT" for variable in container["env"])
    assert schemes == {"HTTPS" if tls else "HTTP"}
    starts = container["startupProbe"]
    assert starts["periodSeconds"] * starts["failureThreshold"] >= 600


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_each_object_of_the_chart_selects_the_pods_of_its_role(path: Path) -> None:
    objects = [each for each in yaml.safe_load_all(path.read_text()) if each]
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "StatefulSet"]
    masters = sum(pod["app.kubernetes.io/component"] == "master" for pod in pods)
    picked = 0
    for each in objects:
        spec = each.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector", {}))
        labels = selector.get("matchLabels", selector) or {}
        if labels:
            matching = [pod for pod in pods if labels.items() <= pod.items()]
            name = each["metadata"]["name"]
            whole_role = masters if labels.get("app.kubernetes.io/component") == "master" else 1
            most = 1 if "registry" in labels else whole_role
            assert len(matching) == (len(pods) if each["kind"] == "PodMonitor" else most), name
            if each["kind"] == "StatefulSet":
                assert each["spec"]["template"]["metadata"]["labels"] in matching, name
            picked += 1
    assert picked >= 8
    headless = [each["spec"] for each in objects if each["kind"] == "Service"]
    assert len(headless) == 2
    assert all(each["clusterIP"] == "None" and each["publishNotReadyAddresses"] for each in headless)
    budgets = [each["spec"]["maxUnavailable"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert budgets == [1, 1]


def seconds(text: str) -> float:
    """`35min`, `2m`."""
    number, unit = re.fullmatch(r"(\d+)(s|min|m|h)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "min": 60, "h": 3600}[unit]
