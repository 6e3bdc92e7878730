"""What each kind of fault does to the servers of a schedule. Those that strike tasks are the job's own matter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness.files import files_below
from tests.faults.explore.cluster import READY_S, DidNotStart, Scene, Server
from tests.faults.explore.schedule import APP_TIMEOUT_S, WORKER_TIMEOUT_S, Fault

LONG = 0.5 * WORKER_TIMEOUT_S
"""A worker that is away for longer may be given up."""
NOT_FLIPPED = ("lock", "worker-id", "belongs-to", "data-directories", "incarnation", "journals")
"""A worker whose identity is damaged asks for an operator: its error names the file."""
START_AGAIN_S = 0.5
FOR_GOOD_S = 6.0
"""How long a disk fails that goes on failing."""


def strike(scene: Scene, fault: Fault) -> None:
    """Do it to the end: a process that is stopped goes on again, one that is killed is started.

    :raises DidNotStart, Hung: a server does not come back.
    """
    STRIKES[fault.kind](scene, fault)


def _kill(scene: Scene, fault: Fault) -> None:
    server = victim(scene.servers, fault)
    with server.lock:
        began = time.monotonic()
        server.kill()
        time.sleep(fault.amount)
        back(scene, server)
        _away(scene, server, time.monotonic() - began)


def _restart(scene: Scene, fault: Fault) -> None:
    server = victim(scene.servers, fault)
    with server.lock:
        began = time.monotonic()
        server.stop()
        back(scene, server)
        _away(scene, server, time.monotonic() - began)


def back(scene: Scene, server: Server) -> None:
    """Start it, again and again as a supervisor does while it ends. One whose registry's files were damaged gets an
    empty one, as its error asks for; workers with outputs of the former one give these up.

    :raises DidNotStart, Hung: it does not come back.
    """
    give_up = time.monotonic() + READY_S
    anew = False
    while True:
        server.launch()
        if scene.schedule.topology == "standby" and server in scene.masters:
            return  # the other one leads
        try:
            server.await_ready()
            if anew:
                _give_up_outputs(scene, server)
            return
        except DidNotStart as failed:
            scene.may_lose |= server.name.startswith("worker")  # it may be given up before it is back
            registry = server.directories[0] / "master"
            if scene.may_end_run and registry.exists() and str(registry) in str(failed):
                registry.rename(registry.with_name(f"damaged-{time.monotonic_ns()}"))
                anew = True
            elif scene.may_end_run and str(journals := server.directories[0] / "journals") in str(failed):
                journals.unlink()
            elif time.monotonic() > give_up:
                raise
        time.sleep(START_AGAIN_S)


def _give_up_outputs(scene: Scene, master: Server) -> None:
    """Of another journal than the master's, as the errors of the workers ask for."""
    for worker in scene.workers:
        if worker is master:
            continue
        with worker.lock:
            worker.kill()
            (worker.directories[0] / "journals").unlink(missing_ok=True)
            back(scene, worker)


def _stop(scene: Scene, fault: Fault) -> None:
    server = victim(scene.servers, fault)
    with server.lock:
        if server.child is None or not server.child.alive:
            return
        _away(scene, server, fault.amount)
        server.child.freeze()
        time.sleep(fault.amount)
        server.child.thaw()


def _away(scene: Scene, server: Server, seconds: float) -> None:
    if server.name.startswith("worker") and seconds > LONG:
        scene.may_lose = True


def _clock(scene: Scene, fault: Fault) -> None:
    victim(scene.servers, fault).set_clock(fault.amount)


def _disk(scene: Scene, fault: Fault) -> None:
    where, error, times = fault.detail.split()
    server = _holder(scene, where, fault)
    below = str(_directory(server, where, fault))
    count = 1 if times == "once" else 1 << 30
    number = server.add_rule(below=below, skip=int(fault.amount), times=count, errno=error)
    time.sleep(FOR_GOOD_S)
    server.remove_rule(number)
    _revive(scene, server)


def _hang(scene: Scene, fault: Fault) -> None:
    server = _holder(scene, fault.detail, fault)
    scene.may_lose |= fault.detail == "data"
    number = server.add_rule(below=str(_directory(server, fault.detail, fault)), skip=0)
    time.sleep(fault.amount)
    server.remove_rule(number)
    _revive(scene, server)


def _revive(scene: Scene, server: Server) -> None:
    """After a disk was mended its server is started again, as the errors ask for."""
    with server.lock:
        if server.child is not None and server.child.frozen:
            return
        began = time.monotonic()
        server.kill()
        back(scene, server)
        _away(scene, server, time.monotonic() - began)


def _network(scene: Scene, fault: Fault) -> None:
    which, what = fault.detail.split()
    proxies = scene.proxies[which]
    scene.may_lose |= fault.amount > LONG and scene.schedule.topology != "server"
    scene.may_end_run |= what == "freeze" and fault.amount > APP_TIMEOUT_S / 3  # no heartbeat arrives
    for proxy in proxies:
        if what == "freeze":
            proxy.freeze()
        elif what == "delay":
            proxy.delay = 0.05
    time.sleep(0.0 if what == "reset" else fault.amount)
    for proxy in proxies:
        proxy.delay = 0.0
        proxy.thaw()
        if what != "delay":
            proxy.reset()  # what was half open is given up


def _flip(scene: Scene, fault: Fault) -> None:
    """One bit of one file. One of the registry shows at a start only, so there is one."""
    server = _holder(scene, "journal" if fault.detail == "journal" else "data", fault)
    below = [server.directories[0] / "master"] if fault.detail == "journal" else server.directories
    found = [path for root in below for path in files_below(root) if _can_flip(path, fault.detail)]
    if not found:
        return
    scene.may_lose = True
    journal = any("master" in path.parts for path in found)
    scene.may_end_run |= journal
    chance = random.Random(fault.amount)
    flip(chance.choice(sorted(found)), chance)
    if journal:
        with server.lock:
            server.kill()
            back(scene, server)


def flip(path: Path, chance: random.Random) -> None:
    """Flip one bit; nothing if the file has gone or is empty."""
    try:
        with path.open("r+b") as file:
            size = file.seek(0, 2)
            if not size:
                return
            file.seek(0)
            written = len(file.read().rstrip(b"\0"))  # what follows may be room that was reserved
            at = file.seek(chance.randrange(written or size))
            [byte] = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
    except FileNotFoundError:
        pass  # it was removed meanwhile


def _can_flip(path: Path, detail: str) -> bool:
    if detail == "output":
        return path.suffix in (".out", ".compacted")
    if detail == "journal":
        return path.name.startswith(("log-", "snapshot-"))
    return path.name not in NOT_FLIPPED and path.suffix != ".partial"


def _directory(server: Server, where: str, fault: Fault) -> Path:
    if where == "journal":
        return server.directories[0] / "master"
    return server.directories[fault.victim % len(server.directories)] / "worker"


def _holder(scene: Scene, where: str, fault: Fault) -> Server:
    return victim(scene.masters if where == "journal" else scene.workers, fault)


def victim(servers: list[Server], fault: Fault) -> Server:
    return servers[fault.victim % len(servers)]


STRIKES: dict[str, Callable[[Scene, Fault], None]] = {
    "kill": _kill,
    "restart": _restart,
    "stop": _stop,
    "clock": _clock,
    "disk": _disk,
    "hang": _hang,
    "network": _network,
    "flip": _flip,
}
