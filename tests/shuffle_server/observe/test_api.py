"""The JSON API and the page of a master."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import PermissionDenied
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.compaction_shown import CompactionShown
from shuffle_server.master.master import Master
from shuffle_server.observe.api import DRAWN, LARGEST, MOST_ROWS, Api
from shuffle_server.observe.figures import MasterSources, Skew, Writable
from shuffle_server.observe.http_endpoint import Request
from shuffle_server.status_pages import PAGE
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Authenticate, Keyring, Principal
from tests.certificates import make_party, make_secret
from tests.shuffle_server.helpers import write_map

SHUFFLES = PAGE + 1
MANUAL = Path(__file__).parents[3] / "docs" / "operations.md"
PARTITIONS = "shuffles/{app}/{shuffle}/partitions"
PRESSURE = ("memory_used", "memory_budget", "streams_waiting", "credit_stalls", "credit_stall_seconds")
NO_SKEW = Skew("a", 0, 0, 0, np.zeros(0, np.int64))


def api_of(
    status: Callable[[pb.StatusRequest], pb.StatusReply],
    authenticate: Authenticate | None = None,
    shown: bool = True,
    skew: Skew = NO_SKEW,
) -> Api:
    """Of a master of which only what the API asks is there."""
    nobody = cast("Master", None)
    master = MasterSources(
        nobody,
        Writable,
        lambda: 0,
        status=status,
        events=lambda after, limit: [pb.ClusterEvent(kind="leader")],
        skew=lambda app, shuffle: skew,
        standbys=lambda: ["host/7"],
        address="host:9110",
    )
    return Api(lambda: master, authenticate, shown)


def get(address: str, path: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", headers=headers), timeout=60) as got:
        return json.load(got)


@pytest.mark.parametrize(("cost", "seconds"), [(0.001, 1.0), (0.2, 4.0)])
def test_status_that_takes_long_is_made_less_often(
    monkeypatch: pytest.MonkeyPatch, cost: float, seconds: float
) -> None:
    now, asked = 0.0, 0

    def status(request: pb.StatusRequest) -> pb.StatusReply:
        nonlocal asked
        asked += 1
        return pb.StatusReply()

    clocks = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: asked * cost)
    monkeypatch.setattr("shuffle_server.observe.api.time", clocks)
    answer = api_of(status).routes()["/api/v1/cluster"]
    for made in (1, 2):
        assert answer(Request("")).status == HTTPStatus.OK
        now += 0.9 * seconds
        answer(Request(""))
        assert asked == made
        now += 0.2 * seconds


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", ["--http-listen", "127.0.0.1:0"]) as process:
        yield process


def test_it_tells_of_workers_applications_shuffles_and_events(server: ServerProcess) -> None:
    with RemoteShuffle({"server": server.control}) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        write_map(plugin, handle, 0)
        cluster = get(server.metrics, "/api/v1/cluster")
        assert (cluster["workers"], cluster["apps"], cluster["shuffles"]) == (1, 1, 1)
        [worker] = get(server.metrics, "/api/v1/workers")["rows"]
        assert (worker["address"], worker["state"]) == (server.data, "in use")
        [app] = get(server.metrics, "/api/v1/apps")["rows"]
        assert app["bytes"] == cluster["bytes"] > 0
        assert app["host"] == socket.gethostname()
        [shuffle] = get(server.metrics, f"/api/v1/shuffles?app={handle.spec.id.app}")["rows"]
        assert (shuffle["partitions"], shuffle["maps"], shuffle["committed"]) == (8, 2, 1)
        assert get(server.metrics, "/api/v1/shuffles?app=nobody")["total"] == 0
        assert (cluster["leader"], cluster["memory_budget"]) == (server.control, worker["memory_budget"])
    kinds = [event["kind"] for event in get(server.metrics, "/api/v1/events")["rows"]]
    assert kinds == ["leader", "worker-joined", "application-began", "application-ended"]
    [last] = get(server.metrics, "/api/v1/events?after=3")["rows"]
    assert last["number"] == 4


def test_only_what_the_page_holds_runs_in_it(server: ServerProcess) -> None:
    with urllib.request.urlopen(f"http://{server.metrics}/", timeout=60) as got:
        policy, text = got.headers["Content-Security-Policy"], got.read()
    for kind in ("script", "style"):
        [part] = re.findall(rf"<{kind}>(.*?)</{kind}>".encode(), text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(part).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(rb"\son\w+=|\sstyle=|https?://", text)


def test_with_a_secret_it_wants_the_token_of_the_cluster(tmp_path: Path) -> None:
    secret = make_secret(tmp_path / "secret")
    arguments = ["--http-listen", "127.0.0.1:0", "--secret-file", str(secret)]
    keys = Keyring(secrets=(secret.read_bytes().splitlines()[0],))
    credentials = keys.for_cluster()
    with ServerProcess(tmp_path / "d", tmp_path / "log", arguments, credentials=credentials) as server:
        for token, status in (("", 401), ("wrong", 401), (keys.for_app("a").token, 401)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(server.metrics, "/api/v1/apps", token)
            assert refused.value.code == status
            refused.value.close()
        assert get(server.metrics, "/api/v1/apps", credentials.token)["rows"] == []


def test_the_runs_of_an_application_are_found_by_its_name_and_the_partitions_of_the_newest(
    server: ServerProcess,
) -> None:
    with (
        RemoteShuffle({"server": server.control}) as plugin,
        plugin.master("etl") as old,
        plugin.master("etl") as new,
        plugin.master("other") as other,
    ):
        handles = [master.register_shuffle(4, 1) for master in (old, new, other)]
        runs = [handle.spec.id.app for handle in handles]
        path = f"/api/v1/shuffles/etl/{handles[1].spec.id.shuffle}/partitions"
        assert get(server.metrics, path)["app"] == runs[1]
        path = path.replace("etl", runs[0].replace("~", "%7E"))
        assert get(server.metrics, path)["app"] == runs[0]
        found = get(server.metrics, "/api/v1/shuffles?app=etl&sort=app")["rows"]
        assert [row["app"] for row in found] == sorted(runs[:2])


@pytest.mark.parametrize("path", ["/api/v1/partitions", "/api/v1/shuffles/a//partitions", "/api/v2/cluster"])
def test_a_path_of_the_api_that_there_is_not_is_refused_as_the_others_are(server: ServerProcess, path: str) -> None:
    status, answer = refused(server.metrics, path)
    assert (status, answer["error"]) == (404, f"there is no path {path}")
    assert "/api/v1/shuffles/{app}/{shuffle}/partitions" in answer["remedy"]


def test_a_number_that_is_none_is_named(server: ServerProcess) -> None:
    status, answer = refused(server.metrics, "/api/v1/shuffles/a/first/partitions")
    assert (status, answer["error"]) == (400, "shuffle=first is out of range")


def refused(address: str, path: str) -> tuple[int, Any]:
    with pytest.raises(urllib.error.HTTPError) as error:
        get(address, path)
    with error.value:
        return error.value.code, json.load(error.value)


def ask(api: Api, path: str, query: str = "", authorization: str = "", **named: str) -> tuple[int, Any]:
    response = api.routes()[f"/api/v1/{path}"](Request("", authorization, query, named))
    return response.status, json.loads(response.body)


class Shuffles:
    """A master with many shuffles; counts how often it is asked for the first page."""

    asked = 0

    def status(self, request: pb.StatusRequest) -> pb.StatusReply:
        self.asked += not request.first
        end = min(SHUFFLES, request.first + request.limit)
        ids = range(request.first, end)
        return pb.StatusReply(
            shuffles=[
                pb.ShuffleStatus(shuffle=pb.ShuffleKey(app="a", shuffle=n), totals=pb.Totals(bytes=n % 7)) for n in ids
            ],
            next=end if end < SHUFFLES else 0,
        )


def test_pages_are_sorted_here_and_the_master_is_asked_once_a_second() -> None:
    master = Shuffles()
    api = api_of(master.status)
    status, page = ask(api, "shuffles", "sort=-bytes&first=1&limit=2")
    assert (status, page["total"], [row["bytes"] for row in page["rows"]]) == (200, SHUFFLES, [6, 6])
    for _ in range(50):
        ask(api, "cluster")
    assert master.asked < 51


def test_the_largest_come_first_unless_another_order_is_asked_for() -> None:
    def status(request: pb.StatusRequest) -> pb.StatusReply:
        return pb.StatusReply(
            workers=[pb.Worker(id=id) for id in "ba"],
            apps=[pb.AppStatus(app="a", bytes=size) for size in (1, 3, 2)],
            shuffles=[pb.ShuffleStatus(totals=pb.Totals(bytes=size)) for size in (1, 3, 2)],
        )

    api = api_of(status)
    for path in ("apps", "shuffles"):
        assert [row["bytes"] for row in ask(api, path)[1]["rows"]] == [3, 2, 1]
        assert [row["bytes"] for row in ask(api, path, "sort=bytes")[1]["rows"]] == [1, 2, 3]
    assert [row["worker"] for row in ask(api, "workers")[1]["rows"]] == ["a", "b"]


def test_applications_are_sorted_by_their_drivers() -> None:
    drivers = [pb.Driver(user="b", host="y", began=2.0), pb.Driver(user="a", host="z", began=3.0), None]
    apps = [pb.AppStatus(app=str(number), driver=driver) for number, driver in enumerate(drivers)]
    api = api_of(lambda request: pb.StatusReply(apps=apps))
    for column, order in {"user": "210", "host": "201", "began": "201"}.items():
        rows = ask(api, "apps", f"sort={column}")[1]["rows"]
        assert "".join(row["app"] for row in rows) == order
        assert (rows[0]["user"], rows[0]["host"], rows[0]["began"]) == ("", "", None)


def test_back_pressure_of_the_workers_is_summed() -> None:
    state = pb.WorkerStatus(
        worker="a", memory_used=1, memory_budget=10, waiting_streams=2, credit_stalls=3, credit_stall_seconds=0.5
    )
    other = pb.WorkerStatus(worker="b", memory_used=5, memory_budget=10, credit_stalls=4)
    api = api_of(lambda request: pb.StatusReply(workers=[pb.Worker(id="a")], states=[state, other]))
    [row] = ask(api, "workers")[1]["rows"]
    found = {name: (row[name], ask(api, "cluster")[1][name]) for name in PRESSURE}
    assert found == dict(zip(PRESSURE, [(1, 6), (10, 20), (2, 2), (3, 7), (0.5, 0.5)], strict=True))


def test_of_many_shuffles_rows_are_made_of_those_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[pb.ShuffleStatus] = []

    def note(self: CompactionShown, shuffle: pb.ShuffleStatus) -> str:
        made.append(shuffle)
        return "-"

    monkeypatch.setattr(CompactionShown, "of", note)
    assert len(ask(api_of(Shuffles().status), "shuffles", "limit=7")[1]["rows"]) == len(made) == 7


@pytest.mark.parametrize("query", ["sort=colour", f"limit={MOST_ROWS + 1}", "first=-1", "limit=many", "limit=%C2%B2"])
def test_a_page_that_there_is_not_is_refused_with_what_there_is(query: str) -> None:
    status, answer = ask(api_of(Shuffles().status), "shuffles", query)
    assert status == 400
    assert answer["remedy"].startswith("use ")


def test_a_token_of_an_application_or_without_encryption_is_not_enough() -> None:
    def authenticate(tokens: Any, apps: Any) -> Principal:
        if not tokens:
            raise PermissionDenied("there is no token")
        return Principal("app")

    def api(shown: bool) -> Api:
        return api_of(Shuffles().status, authenticate, shown)

    assert ask(api(True), "apps", authorization="Bearer t")[0] == 403
    assert ask(api(True), "apps")[0] == 401
    status, answer = ask(api(False), "apps", authorization="Bearer t")
    assert status == 403
    assert "--http-listen" in answer["error"]


def skew_of(sizes: list[int]) -> Any:
    skew = Skew("a", 3, 2, len(sizes), np.array(sizes, np.int64))
    api = api_of(Shuffles().status, skew=skew)
    return ask(api, PARTITIONS, app="a", shuffle="0")[1]


def test_skew_is_shown_by_percentiles_the_largest_and_some_of_all() -> None:
    answer = skew_of([5] * 999 + [5000])
    assert (answer["median"], answer["max"], answer["bytes"]) == (5, 5000, 5 * 999 + 5000)
    assert answer["largest"][0] == {"partition": 999, "bytes": 5000}
    assert len(answer["largest"]) == LARGEST
    assert len(answer["sizes"]) == DRAWN
    assert answer["sizes"][0] == 5000
    assert (answer["outputs"], answer["committed"]) == (2, 3)
    assert skew_of([])["sizes"] == []
    assert skew_of([7])["sizes"] == [7]


def test_partitions_of_workers_everywhere_are_summed(tmp_path: Path) -> None:
    http = ["--http-listen", "127.0.0.1:0"]
    with (
        ServerProcess(tmp_path / "m", tmp_path / "m.log", http, role="master") as master,
        ServerProcess(tmp_path / "1", tmp_path / "1.log", ["--master", master.control], role="worker"),
        ServerProcess(tmp_path / "2", tmp_path / "2.log", ["--master", master.control], role="worker"),
        RemoteShuffle({"server": master.control, "codec": "none"}) as plugin,
        plugin.master("app") as driver,
    ):
        handle = driver.register_shuffle(4, 6)
        for number in range(6):
            with plugin.writer(handle, MapAttempt(number, 0)) as writer:
                for _ in range(100):
                    writer.write(2, b"x" * 100)
                writer.write(number % 4, b"y")
                writer.commit()
        path = f"/api/v1/shuffles/{handle.spec.id.app}/{handle.spec.id.shuffle}/partitions"
        answer = get(master.metrics, path)
        assert (answer["partitions"], answer["committed"], answer["outputs"]) == (4, 6, 6)
        assert answer["largest"][0]["partition"] == 2
        assert answer["max"] > 6 * 100 * 100
        assert answer["bytes"] == get(master.metrics, "/api/v1/cluster")["bytes"]
        assert refused(master.metrics, path.replace("/partitions", "7/partitions"))[0] == 404


def test_over_tls_the_token_may_come_from_another_machine(tmp_path: Path) -> None:
    party, secret = make_party(tmp_path / "tls"), make_secret(tmp_path / "secret")
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret))
    arguments = ["--http-listen", "0.0.0.0:0", "--secret-file", str(secret)]
    arguments += ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--tls-ca", str(party.ca)]
    with ServerProcess(tmp_path / "d", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        trust = ssl.create_default_context(cafile=str(party.ca))
        port = server.metrics.rpartition(":")[2]
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60):  # one that says nothing keeps nobody out
            for path, token, status in (("health", "", 200), ("api/v1/apps", "", 401), ("", "", 200)):
                assert https(f"https://localhost:{port}/{path}", trust, token) == status, path
            assert https(f"https://localhost:{port}/api/v1/apps", trust, keys.for_cluster().token) == 200
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60)


def https(url: str, trust: ssl.SSLContext, token: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as got:
            got.read()
            return int(got.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def fields(document: Any) -> set[str]:
    """The names in a document, and in those inside it."""
    if isinstance(document, list):
        return set[str]().union(*map(fields, document))
    return set(document).union(*map(fields, document.values())) if isinstance(document, dict) else set()


def test_the_documentation_has_the_fields_of_each_answer() -> None:
    reply = pb.StatusReply(
        workers=[pb.Worker(id="w")],
        states=[pb.WorkerStatus(worker="w", disks=[pb.DiskStatus()])],
        lost=[pb.LostWorker(worker="v", reason="silent")],
        apps=[pb.AppStatus()],
        shuffles=[pb.ShuffleStatus()],
    )
    api = api_of(lambda request: reply, skew=Skew("a", 1, 1, 2, np.array([1, 2], np.int64)))
    lists = {name: ask(api, name)[1]["rows"] for name in ("workers", "apps", "shuffles", "events")}
    answers = lists | {"cluster": ask(api, "cluster")[1], PARTITIONS: ask(api, PARTITIONS, app="a", shuffle="0")[1]}
    written = re.findall(
        r"^\| `([a-z]+[\w/?=]*)` \| (`.*) \|$", MANUAL.read_text().partition("# The JSON API")[2], re.M
    )
    documented = {re.sub(r"\?.*", "", path): set(re.findall("`([a-z0-9_]+)`", row)) for path, row in written}
    documented[PARTITIONS] = documented.pop("shuffles/APP/N/partitions")
    assert {name: documented.get(name) for name in answers} == {name: fields(each) for name, each in answers.items()}


def test_the_masters_are_named() -> None:
    cluster = ask(api_of(Shuffles().status), "cluster")[1]
    assert (cluster["leader"], cluster["standbys"]) == ("host:9110", ["host/7"])
