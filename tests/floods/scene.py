"""The servers under a flood, started as a user starts them, and the measures of their processes.

The victim reaches them by 127.0.0.1 and the hostile peer by [::1]: two hosts, as bounds count them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.harness.server import ServerProcess
from shuffle_api.interfaces import OptionValue
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.security import Keyring
from shuffle_transport.tokens import worker_token
from tests.certificates import make_party, make_secret

MIB = 1 << 20
BUDGET = 64 * MIB
SLACK = 128 * MIB  # of memory, over the budget and the memory of an idle server
APP_TIMEOUT = 10  # seconds
WORKER = "w-0123456789ab"
BOUNDS = {
    "--memory": BUDGET,
    "--app-timeout": APP_TIMEOUT,
    "--worker-timeout": APP_TIMEOUT,
    "--overload-timeout": 5,
    "--recycle": 0,
    "--staged-timeout": 600,
    "--app-max-attempts": 256,
    "--app-max-calls": 512,
    "--app-max-shuffles": 2000,
    "--peer-max-connections": 200,
    "--app-max-runs": 100,
    "--log-level": "warning",
}
OF_MASTERS = ("--app-timeout", "--worker-timeout", "--app-max-shuffles", "--app-max-runs")
OF_BOTH = ("--peer-max-connections", "--log-level")


@dataclass(frozen=True, slots=True)
class Target:
    """What a hostile peer knows: addresses as it reaches them, and the secret, of which it makes its one token."""

    control: str
    data: str
    metrics: str
    secret: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes take; `memory` is in bytes."""

    memory: int
    threads: int
    files: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Servers that run; `options` are for a client of theirs."""

    target: Target
    servers: tuple[ServerProcess, ...]
    options: dict[str, OptionValue]
    keys: Keyring

    def usage(self) -> Usage:
        """Of each process; the largest of each figure counts."""
        pids = [server.pid for server in self.servers]
        memory = max(_status(pid, "VmRSS:") for pid in pids) * 1024
        threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)
        return Usage(memory, threads, sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids))

    def details(self) -> Counter[str]:
        """How many threads there are of each name, and files of each path."""
        found, sockets = Counter[str](), _sockets()
        for server in self.servers:
            with suppress(OSError):  # it has ended meanwhile
                for task in Path(f"/proc/{server.pid}/task").iterdir():
                    found[f"thread {(task / 'comm').read_text().strip()}"] += 1
            for file in Path(f"/proc/{server.pid}/fd").iterdir():
                with suppress(OSError):
                    path = os.readlink(file)
                    found[sockets.get(path, path)] += 1
        return found

    def forget_peak(self) -> None:
        """Have the system count the most memory from now on."""
        for server in self.servers:
            Path(f"/proc/{server.pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        """Bytes: the largest memory of one process since `forget_peak`."""
        return max(_status(server.pid, "VmHWM:") for server in self.servers) * 1024

    def log(self) -> str:
        return "".join(server.log.read_text(errors="replace") for server in self.servers)


def _sockets() -> dict[str, str]:
    """What the system says of each TCP socket: local and remote address, state."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            ends = [f"{words[at][:-5][-8:]}:{int(words[at][-4:], 16)}" for at in (1, 2)]
            found[f"socket:[{words[9]}]"] = f"{' '.join(ends)} state {words[3]}"
    return found


def _status(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(name)[2].split()[0])


def arguments(role: str = "server") -> list[str]:
    """The options of a process."""
    taken = {
        "server": tuple(BOUNDS),
        "master": (*OF_MASTERS, *OF_BOTH),
        "worker": tuple(name for name in BOUNDS if name not in OF_MASTERS),
    }
    return [word for name in taken[role] for word in (name, str(BOUNDS[name]))]


@contextmanager
def one_server(root: Path, *others: str, tls: bool = False) -> Iterator[Scene]:
    """Master and worker in one process, with a secret; `others` are further options."""
    secret = make_secret(root / "secret")
    options: dict[str, OptionValue] = {"secret_file": str(secret)}
    extra = ["--secret-file", str(secret), "--metrics-listen", "[::]:0", "--advertise", "127.0.0.1"]
    if tls:
        party = make_party(root / "tls")
        extra += ["--tls-cert", str(party.cert), "--tls-key", str(party.key)]
        options["tls_ca"] = str(party.ca)
    keys = load_keyring(secret_file=str(secret), tls_ca=str(options.get("tls_ca", "")))
    given = [*arguments(), *extra, *others]
    with ServerProcess(root / "data", root / "log", given, credentials=keys.for_cluster(), listen="[::]:0") as server:
        target = Target(_hostile(server.control), _hostile(server.data), _hostile(server.metrics), str(secret))
        yield Scene(target, (server,), options | {"server": server.control}, keys)


@contextmanager
def tls_server(root: Path) -> Iterator[Scene]:
    with one_server(root, tls=True) as scene:
        yield scene


@contextmanager
def cluster(root: Path) -> Iterator[Scene]:
    """A master, and a worker that has a token and no secret."""
    secret = make_secret(root / "secret")
    keys = load_keyring(secret_file=str(secret))
    with ExitStack() as stack:
        given = [*arguments("master"), "--secret-file", str(secret), "--advertise", "127.0.0.1"]
        master = stack.enter_context(
            ServerProcess(
                root / "m", root / "m.log", given, credentials=keys.for_cluster(), role="master", listen="[::]:0"
            )
        )
        (root / "w").mkdir(mode=0o700)
        (root / "w" / "worker-id").write_text(f"{WORKER}\n")
        token = root / "token"
        token.touch(0o600)
        token.write_text(worker_token(secret.read_bytes().strip(), WORKER))
        given = [*arguments("worker"), "--master", master.control, "--token-file", str(token)]
        given += ["--data-listen", "[::]:0", "--advertise", "127.0.0.1", "--metrics-listen", "[::]:0"]
        worker = stack.enter_context(ServerProcess(root / "w", root / "w.log", given, role="worker"))
        target = Target(_hostile(master.control), _hostile(worker.data), _hostile(worker.metrics), str(secret))
        yield Scene(target, (master, worker), {"server": master.control, "secret_file": str(secret)}, keys)


SCENES = {"server": one_server, "tls": tls_server, "cluster": cluster}


def _hostile(address: str) -> str:
    return f"[::1]:{address.rpartition(':')[2]}"


def until(condition: Callable[[], bool], seconds: float) -> float | None:
    """Seconds after which a condition came true; None when it did not within `seconds`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(0.05)
    return time.monotonic() - began
