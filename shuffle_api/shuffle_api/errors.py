"""What may go wrong: one class per wire error code, and a few that only a client can meet.

Every error says what broke, where (worker, shuffle, map output, as far as they apply) and what to do
next. Errors survive pickling, because engines carry them from tasks to the driver.

Three errors are easily confused and must not be: `AppExpired` (the data was there, its application
fell silent), `MapOutputNotWritten` (not there yet) and `MapOutputLost` (was there, run the map again).
None of them ever reads as "no records".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from shuffle_api.ids import MapAttempt, ShuffleId

__all__ = [
    "AppExists",
    "AppExpired",
    "AttemptSuperseded",
    "BlockCorrupt",
    "CommitMismatch",
    "DeadlineExceeded",
    "ErrorCode",
    "InternalError",
    "InvalidArgument",
    "MapOutputLost",
    "MapOutputNotWritten",
    "Overloaded",
    "PermissionDenied",
    "ProtocolMismatch",
    "QuotaExceeded",
    "ServerUnreachable",
    "ShuffleError",
    "ShuffleExists",
    "ShuttingDown",
    "StaleEpoch",
    "StorageFailed",
    "StorageFull",
    "StreamBroken",
    "Unauthenticated",
    "UnknownApp",
    "UnknownCodec",
    "UnknownOption",
    "UnknownPlugin",
    "UnknownShuffle",
    "WrongMaster",
]


class ErrorCode(IntEnum):
    """The codes of the wire protocol (`ErrorCode` in flight_shuffle.proto): same names, same numbers."""

    INTERNAL = 0
    INVALID_ARGUMENT = 1
    PROTOCOL_MISMATCH = 2
    UNKNOWN_APP = 3
    APP_EXPIRED = 4
    APP_EXISTS = 5
    UNKNOWN_SHUFFLE = 6
    SHUFFLE_EXISTS = 7
    MAP_OUTPUT_NOT_WRITTEN = 8
    MAP_OUTPUT_LOST = 9
    ATTEMPT_SUPERSEDED = 10
    COMMIT_MISMATCH = 11
    BLOCK_CORRUPT = 12
    STORAGE_FULL = 13
    STORAGE_FAILED = 14
    OVERLOADED = 15
    SHUTTING_DOWN = 16
    UNAUTHENTICATED = 17
    PERMISSION_DENIED = 18
    DEADLINE = 19
    STALE_EPOCH = 20
    QUOTA_EXCEEDED = 21
    WRONG_MASTER = 22


class ShuffleError(Exception):
    """Base of every error this project raises on purpose.

    `message` says what happened, `remedy` what to do next (a subclass has one of its own if none is given);
    `worker`, `shuffle` and `output` say where, None when that does not apply. `str()` shows all of it.
    """

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    default_remedy: ClassVar[str] = "report this with the server's log"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        worker: str | None = None,
        shuffle: ShuffleId | None = None,
        output: MapAttempt | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy
        self.worker = worker
        self.shuffle = shuffle
        self.output = output

    def __str__(self) -> str:
        places = (
            f"worker {self.worker}" if self.worker else "",
            f"shuffle {self.shuffle}" if self.shuffle else "",
            str(self.output) if self.output else "",
        )
        where = ", ".join(filter(None, places))
        return f"{self.message}{f' ({where})' if where else ''}. To do: {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with `args` alone and so lose or misplace the other arguments.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(cls: type[ShuffleError], args: tuple[Any, ...]) -> ShuffleError:
    error = cls.__new__(cls)
    error.args = args
    return error


class InternalError(ShuffleError):
    """A bug, here or at the peer."""

    code = ErrorCode.INTERNAL


class InvalidArgument(ShuffleError):
    """A malformed or impossible request. Repeating it does not help."""

    code = ErrorCode.INVALID_ARGUMENT
    default_remedy = "correct the call"


class ProtocolMismatch(ShuffleError):
    """The peer speaks another version of the protocol, or another protocol."""

    code = ErrorCode.PROTOCOL_MISMATCH
    default_remedy = "install the same version of flight-shuffle on both sides"


class UnknownApp(ShuffleError):
    """The application was never registered here, or has been unregistered."""

    code = ErrorCode.UNKNOWN_APP
    default_remedy = "register the application first (ShufflePlugin.master)"


class AppExpired(ShuffleError):
    """The application was registered, then silent for longer than the expiry time; its data is gone."""

    code = ErrorCode.APP_EXPIRED
    default_remedy = (
        "register its shuffles anew, and keep its master open (it sends the heartbeats) or raise --app-timeout"
    )


class AppExists(ShuffleError):
    """Another run has registered this application: a server of protocol version 1 takes one at a time."""

    code = ErrorCode.APP_EXISTS
    default_remedy = "choose an application id that is unique per run, or close the other master"


class UnknownShuffle(ShuffleError):
    """The shuffle was never registered, or has been unregistered."""

    code = ErrorCode.UNKNOWN_SHUFFLE
    default_remedy = "register the shuffle before use, and unregister it only after its last reader"


class ShuffleExists(ShuffleError):
    """The shuffle number is taken by a shuffle with other properties."""

    code = ErrorCode.SHUFFLE_EXISTS
    default_remedy = "use another shuffle number, or let the master choose one"


class MapOutputNotWritten(ShuffleError):
    """No attempt of this map has committed yet."""

    code = ErrorCode.MAP_OUTPUT_NOT_WRITTEN
    default_remedy = "read after every map of the range has committed"


class MapOutputLost(ShuffleError):
    """Committed once; the data is gone."""

    code = ErrorCode.MAP_OUTPUT_LOST
    default_remedy = "run the map again as a new attempt"


class AttemptSuperseded(ShuffleError):
    """Another attempt of this map has committed: `output` is the winner, `worker` holds it."""

    code = ErrorCode.ATTEMPT_SUPERSEDED
    default_remedy = "use the winner's output, drop this attempt's"


class CommitMismatch(ShuffleError):
    """The commit's statement is not what the worker holds."""

    code = ErrorCode.COMMIT_MISMATCH
    default_remedy = "run the map again as a new attempt"


class BlockCorrupt(ShuffleError):
    """A block's checksum, length or framing is wrong."""

    code = ErrorCode.BLOCK_CORRUPT
    default_remedy = "read another replica or run the map again; check the disk or the network of the worker"


class StorageFull(ShuffleError):
    """No directory has room for new data. Committed data is unharmed."""

    code = ErrorCode.STORAGE_FULL
    default_remedy = "free space, add a data directory or a worker"


class StorageFailed(ShuffleError):
    """A directory cannot be read or written."""

    code = ErrorCode.STORAGE_FAILED
    default_remedy = "check the disk and the permissions of the directory"


class Overloaded(ShuffleError):
    """The memory budget stayed used up until the deadline."""

    code = ErrorCode.OVERLOADED
    default_remedy = "try again later, raise the memory budget or add a worker"


class ShuttingDown(ShuffleError):
    """The service is stopping and takes no new work."""

    code = ErrorCode.SHUTTING_DOWN
    default_remedy = "try again once it is back, or use another worker"


class Unauthenticated(ShuffleError):
    """The request has no token, or one that is not known."""

    code = ErrorCode.UNAUTHENTICATED
    default_remedy = "pass the service's token"


class PermissionDenied(ShuffleError):
    """The token is known and does not allow this."""

    code = ErrorCode.PERMISSION_DENIED
    default_remedy = "use a token with the right, or ask the service's operator"


class DeadlineExceeded(ShuffleError):
    """The answer did not come in time; whether the request took effect is not known."""

    code = ErrorCode.DEADLINE
    default_remedy = "see whether the peer is stuck or overloaded, or raise the timeout"


class QuotaExceeded(ShuffleError):
    """The application holds as much as it may. Its committed data is unharmed."""

    code = ErrorCode.QUOTA_EXCEEDED
    default_remedy = "unregister shuffles without readers, or ask the service's operator for more"


class StaleEpoch(ShuffleError):
    """Said for an older epoch of the master, or by one of a worker that another has followed."""

    code = ErrorCode.STALE_EPOCH
    default_remedy = "join the master again, report the outputs held, then repeat the request"


class WrongMaster(ShuffleError):
    """The application belongs to another registry than this master's. Clients repeat the request at `masters`.

    :ivar masters: the addresses of its masters, HOST:PORT, separated by commas.
    """

    code = ErrorCode.WRONG_MASTER
    default_remedy = "send the request to a master of the application's registry"
    masters: str = ""


_WIRE_ERRORS: dict[int, type[ShuffleError]] = {cls.code: cls for cls in ShuffleError.__subclasses__()}


def error_class(code: int) -> type[ShuffleError]:
    """The class of a wire error code; `InternalError` for a code that a newer peer may have added."""
    return _WIRE_ERRORS.get(code, InternalError)


# Below: errors that arise at the client and never travel as a code of their own. They are defined after
# the table of wire errors, which takes the direct subclasses above.


class ServerUnreachable(ShuffleError):
    """Nobody answers at `address` (`host:port` or a plugin's own endpoint); `cause` is what the attempt said."""

    default_remedy = "check that the service runs, that the address is its control address, and the firewall"

    def __init__(self, address: str, cause: BaseException | str, *, remedy: str = "") -> None:
        super().__init__(f"nobody answers at {address}: {cause}", remedy=remedy)
        self.address = address
        self.cause = str(cause)


class StreamBroken(ShuffleError):
    """A stream stopped before its end message. The data received is incomplete."""

    default_remedy = "repeat the read, or run the attempt again; see the worker's log for why it stopped"


class _UnknownName(InvalidArgument):
    """A name that is not one of the `known`."""

    what: ClassVar[str]

    def __init__(self, value: str, known: Iterable[str]) -> None:
        self.value = value
        self.known = tuple(sorted(known))
        close = difflib.get_close_matches(value, self.known, n=1)
        super().__init__(
            f"unknown {self.what} {value!r}",
            remedy=(f"did you mean {close[0]!r}? " if close else "") + f"known: {', '.join(self.known) or 'none'}",
        )


class UnknownPlugin(_UnknownName):
    """No installed distribution offers a shuffle plugin of this name."""

    what = "shuffle plugin"


class UnknownCodec(_UnknownName):
    """No compression codec has this name."""

    what = "codec"


class UnknownOption(_UnknownName):
    """The plugin or service has no option of this name."""

    what = "option"
