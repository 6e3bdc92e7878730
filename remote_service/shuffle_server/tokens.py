"""The tokens of a server: those it takes and those it shows. Their files are read again when they change."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from shuffle_api.errors import (
    InvalidArgument,
    Overloaded,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    Unauthenticated,
)
from shuffle_api.periodic import PeriodicTask
from shuffle_api.private_file import read_private
from shuffle_server.token_counts import ANSWERS, CHECKS, Counts, TokenStatistics, reason_of
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.credential_files import read_revoked, read_secrets
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import (
    ANYBODY,
    Admission,
    Credentials,
    Principal,
    TlsFiles,
    the_token,
    wrong_token,
)
from shuffle_transport.tokens import check_token, check_unexpired, cluster_token, expiry_of, worker_of, worker_token

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Between two looks whether a file has changed."""

GOOD_SECONDS = 30.0
"""For which a worker that was told a token is good does not ask again."""

MOST_KNOWN = 10_000
MOST_QUESTIONS = 8
"""Tokens about which a worker asks its master at once: strangers make up as many as they like."""

ASK_SECONDS = 10.0

T = TypeVar("T")


class ServerTokens(Protocol):
    """What both endpoints of a server, and its connections to others, need. Thread-safe."""

    def authenticate(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Whom a call comes from (`security.Authenticate`)."""
        ...

    def of_cluster(self) -> str:
        """The token to show for the whole cluster."""
        ...

    def of_worker(self, worker: str) -> str:
        """The token to show as this worker."""
        ...

    def statistics(self) -> TokenStatistics:
        """What became of the calls until now."""
        ...

    def start(self) -> None:
        """Look at the files from now on; idempotent."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class WatchedFile(Generic[T]):
    """What a file says: as it was read at first, and again with each `look` that finds it changed.

    :raises InvalidArgument: what `read` raises, at first; later that is logged, and what the file said before holds.
    """

    def __init__(self, path: str, read: Callable[[str], T]) -> None:
        self._path, self._read = path, read
        self._mark = _mark(path)
        self.value = read(path)

    def look(self) -> None:
        mark = _mark(self._path)
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self.value = self._read(self._path)
            log.info("%s has changed and was read again", self._path)
        except InvalidArgument as error:
            log.error("%s has changed and is not used: %s. What it said before holds", self._path, error)


def _mark(path: str) -> tuple[int, ...]:
    """Differs when the file was written or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


class CountedTokens(ABC):
    """Counts what `admit` says of each call."""

    def __init__(self) -> None:
        self._checks = Counts(CHECKS)

    def authenticate(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Whom a call comes from. Raises what `admit` raises."""
        try:
            principal = self.admit(tokens, apps)
        except ShuffleError as error:
            self._checks.add(reason_of(error))
            raise
        self._checks.add("admitted")
        return principal

    @abstractmethod
    def admit(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Whom a call comes from (`security.Authenticate`)."""

    def statistics(self) -> TokenStatistics:
        return TokenStatistics(self._checks.read())


class SecretTokens(CountedTokens):
    """Of a server that has the secret: it makes and verifies tokens itself.

    :param revoked_file: the applications that are refused; "": none.
    :raises InvalidArgument: a file cannot be used.
    """

    def __init__(self, secret_file: str, revoked_file: str = "") -> None:
        super().__init__()
        self._secrets = WatchedFile(secret_file, read_secrets)
        self._revoked = WatchedFile(revoked_file, read_revoked) if revoked_file else None
        self._task = PeriodicTask("secrets", self.look, LOOK_SECONDS)
        self._admission = self._read()

    def admit(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        return self._admission.authenticate(tokens, apps)

    def of_cluster(self) -> str:
        return cluster_token(self._admission.secrets[0])

    def of_worker(self, worker: str) -> str:
        return worker_token(self._admission.secrets[0], worker)

    def look(self) -> None:
        """Read the files again if they have changed."""
        self._secrets.look()
        if self._revoked is not None:
            self._revoked.look()
        self._admission = self._read()

    def _read(self) -> Admission:
        revoked = frozenset[str]() if self._revoked is None else self._revoked.value
        return Admission(self._secrets.value, revoked)

    def start(self) -> None:
        self._task.start()

    def close(self) -> None:
        self._task.close()


class AskedTokens(CountedTokens):
    """Of a worker that has its own token and no secret: whether the tokens of others are good it asks the master, who
    is shown them with a `Hello`.

    While the master is away, those that were good the last time are.

    :raises InvalidArgument: the file cannot be used.
    """

    def __init__(self, token_file: str, master: str, tls: TlsFiles | None) -> None:
        super().__init__()
        self._questions = Counts(ANSWERS)
        self._token = WatchedFile(token_file, _read_token)
        self._tls = tls
        self._client = ControlClient(
            master, client="flight-shuffle-worker", timeout=ASK_SECONDS, credentials=Credentials(tls=tls)
        )
        self._task = PeriodicTask("token", self._token.look, LOOK_SECONDS)
        self._asking = threading.BoundedSemaphore(MOST_QUESTIONS)
        self._lock = threading.Lock()
        self._good: dict[bytes, float] = {}  # tokens, hashed, each with its application; and until when

    def admit(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Raises Unauthenticated; Overloaded or ServerUnreachable when the master could not be asked."""
        token, app = the_token(tokens, apps), apps[0] if apps else ""
        if not token:
            raise wrong_token(app)
        worker = worker_of(token)
        principal = Principal(app) if app else Principal("", worker) if worker else ANYBODY
        self._check(token, app)
        check_unexpired(expiry_of(token), time.time(), str(principal))
        return principal

    def _check(self, token: str, app: str) -> None:
        key = hashlib.sha256(f"{app} {token}".encode("utf-8", "surrogateescape")).digest()
        now = time.monotonic()
        until = self._good.get(key)
        if until is not None and now < until:
            return
        try:
            self._ask(Credentials(app, token, self._tls))
            self._questions.add("good")
        except (ServerUnreachable, ShuttingDown, Overloaded):
            self._questions.add("unanswered")
            if until is None:
                raise
        except Unauthenticated:
            self._questions.add("refused")
            with self._lock:
                self._good.pop(key, None)
            raise
        self._remember(key, now + GOOD_SECONDS)

    def statistics(self) -> TokenStatistics:
        with self._lock:
            known = len(self._good)
        return TokenStatistics(self._checks.read(), self._questions.read(), known)

    def _remember(self, key: bytes, until: float) -> None:
        with self._lock:
            self._good.pop(key, None)
            while len(self._good) >= MOST_KNOWN:
                del self._good[next(iter(self._good))]
            self._good[key] = until

    def _ask(self, credentials: Credentials) -> None:
        if not self._asking.acquire(timeout=ASK_SECONDS):
            raise Overloaded(
                f"the master is being asked about {MOST_QUESTIONS} tokens",
                remedy="retry; a worker that is started with --secret-file asks nobody",
            )
        try:
            self._client.call("Hello", pb.HelloRequest(protocol=messages.PROTOCOL), credentials)
        finally:
            self._asking.release()

    def of_cluster(self) -> str:
        return self._token.value

    def of_worker(self, worker: str) -> str:
        return self._token.value

    def start(self) -> None:
        self._task.start()

    def close(self) -> None:
        self._task.close()
        self._client.close()


def _read_token(path: str) -> str:
    return check_token(read_private(path, "token_file").decode("utf-8", "replace"), path)
