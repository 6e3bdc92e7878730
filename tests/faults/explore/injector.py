"""Has faults strike beside a job that goes on, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shuffle_api.errors import ShuffleError
from tests.faults.explore.cluster import DidNotStart, Hung, Scene
from tests.faults.explore.ledger import Finding
from tests.faults.explore.schedule import Fault
from tests.faults.explore.strikes import back, strike

AT_ONCE_S = 0.02
"""For so long the job waits for a fault that is to strike at once: kills and stops have then taken effect."""
JOIN_S = 120.0


class Injector:
    """Of one schedule."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._threads: list[threading.Thread] = []
        self._failures: list[Finding] = []
        self._closing = threading.Event()

    def begin(self, fault: Fault, by: Callable[[Scene, Fault], None] = strike) -> None:
        """Strike, `after` seconds from now."""
        thread = threading.Thread(target=self._strike, args=(fault, by), name=f"strike {fault.kind}", daemon=True)
        self._threads.append(thread)
        thread.start()
        if not fault.after:
            thread.join(AT_ONCE_S)

    def quiet(self) -> bool:
        """Whether all that struck is over."""
        return not any(thread.is_alive() for thread in self._threads)

    def failures(self) -> list[Finding]:
        """Servers that did not come back, since the last call."""
        found, self._failures = self._failures, []
        return found

    def heal(self) -> list[Finding]:
        """See `Scene.heal`."""
        return self._guarded(self._scene.heal)

    def restart_all(self) -> list[Finding]:
        """`kill -9` of all servers at once, then another start of each."""

        def restart() -> None:
            began = time.monotonic()
            for server in self._scene.servers:
                server.kill()
            for server in self._scene.servers:
                back(self._scene, server)
            self._scene.heal()
            self._scene.note_downtime(time.monotonic() - began)

        return self._guarded(restart)

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(JOIN_S)

    def _strike(self, fault: Fault, by: Callable[[Scene, Fault], None]) -> None:
        if self._closing.wait(fault.after):
            return
        self._failures += self._guarded(lambda: by(self._scene, fault), str(fault))

    def _guarded(self, call: object, what: str = "") -> list[Finding]:
        try:
            assert callable(call)
            call()
        except DidNotStart as failed:
            return [Finding("start", f"{what}: {failed}")]
        except Hung as hung:
            return [Finding("hang", f"{what}: {hung}")]
        except ShuffleError as error:
            return [Finding("error", f"{what}: {error!r}")]
        return []
