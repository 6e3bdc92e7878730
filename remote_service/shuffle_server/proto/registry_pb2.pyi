from shuffle_transport.proto import flight_shuffle_pb2 as _flight_shuffle_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Identity(_message.Message):
    __slots__ = ("epoch", "worker", "incarnation")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    worker: str
    incarnation: int
    def __init__(self, epoch: _Optional[int] = ..., worker: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("identity", "commits")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ..., commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("shuffle", "output")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    shuffle: _flight_shuffle_pb2.ShuffleKey
    output: _flight_shuffle_pb2.MapOutput
    def __init__(self, shuffle: _Optional[_Union[_flight_shuffle_pb2.ShuffleKey, _Mapping]] = ..., output: _Optional[_Union[_flight_shuffle_pb2.MapOutput, _Mapping]] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CommitResult]
    def __init__(self, results: _Optional[_Iterable[_Union[CommitResult, _Mapping]]] = ...) -> None: ...

class CommitResult(_message.Message):
    __slots__ = ("winner", "error")
    WINNER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    winner: _flight_shuffle_pb2.MapOutput
    error: _flight_shuffle_pb2.Error
    def __init__(self, winner: _Optional[_Union[_flight_shuffle_pb2.MapOutput, _Mapping]] = ..., error: _Optional[_Union[_flight_shuffle_pb2.Error, _Mapping]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("worker", "incarnation", "protocol", "oldest", "registry", "journal", "epoch")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    worker: _flight_shuffle_pb2.Worker
    incarnation: int
    protocol: int
    oldest: int
    registry: str
    journal: str
    epoch: int
    def __init__(self, worker: _Optional[_Union[_flight_shuffle_pb2.Worker, _Mapping]] = ..., incarnation: _Optional[int] = ..., protocol: _Optional[int] = ..., oldest: _Optional[int] = ..., registry: _Optional[str] = ..., journal: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("epoch", "known", "beat_seconds", "registries", "journal")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    BEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REGISTRIES_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    known: bool
    beat_seconds: float
    registries: _containers.RepeatedScalarFieldContainer[str]
    journal: str
    def __init__(self, epoch: _Optional[int] = ..., known: _Optional[bool] = ..., beat_seconds: _Optional[float] = ..., registries: _Optional[_Iterable[str]] = ..., journal: _Optional[str] = ...) -> None: ...

class BeatRequest(_message.Message):
    __slots__ = ("identity", "free_bytes", "status", "shuffles")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    free_bytes: int
    status: _flight_shuffle_pb2.WorkerStatus
    shuffles: _containers.RepeatedCompositeFieldContainer[_flight_shuffle_pb2.ShuffleKey]
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ..., free_bytes: _Optional[int] = ..., status: _Optional[_Union[_flight_shuffle_pb2.WorkerStatus, _Mapping]] = ..., shuffles: _Optional[_Iterable[_Union[_flight_shuffle_pb2.ShuffleKey, _Mapping]]] = ...) -> None: ...

class BeatReply(_message.Message):
    __slots__ = ("gone", "draining", "beat_seconds")
    GONE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    BEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    gone: _containers.RepeatedCompositeFieldContainer[_flight_shuffle_pb2.ShuffleKey]
    draining: bool
    beat_seconds: float
    def __init__(self, gone: _Optional[_Iterable[_Union[_flight_shuffle_pb2.ShuffleKey, _Mapping]]] = ..., draining: _Optional[bool] = ..., beat_seconds: _Optional[float] = ...) -> None: ...

class HeldRequest(_message.Message):
    __slots__ = ("worker", "first")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    worker: str
    first: int
    def __init__(self, worker: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class HeldReply(_message.Message):
    __slots__ = ("outputs", "more")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[HeldOutput]
    more: bool
    def __init__(self, outputs: _Optional[_Iterable[_Union[HeldOutput, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class HeldOutput(_message.Message):
    __slots__ = ("shuffle", "output")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    shuffle: _flight_shuffle_pb2.ShuffleKey
    output: _flight_shuffle_pb2.MapAttempt
    def __init__(self, shuffle: _Optional[_Union[_flight_shuffle_pb2.ShuffleKey, _Mapping]] = ..., output: _Optional[_Union[_flight_shuffle_pb2.MapAttempt, _Mapping]] = ...) -> None: ...

class Verified(_message.Message):
    __slots__ = ("bad", "reason")
    BAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    bad: bool
    reason: str
    def __init__(self, bad: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class SizesRequest(_message.Message):
    __slots__ = ("shuffle", "partitions", "outputs")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    shuffle: _flight_shuffle_pb2.ShuffleKey
    partitions: int
    outputs: _containers.RepeatedCompositeFieldContainer[_flight_shuffle_pb2.MapAttempt]
    def __init__(self, shuffle: _Optional[_Union[_flight_shuffle_pb2.ShuffleKey, _Mapping]] = ..., partitions: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[_flight_shuffle_pb2.MapAttempt, _Mapping]]] = ...) -> None: ...

class SizesReply(_message.Message):
    __slots__ = ("outputs", "bytes")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    outputs: int
    bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outputs: _Optional[int] = ..., bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class LoseRequest(_message.Message):
    __slots__ = ("identity", "outputs")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    outputs: _containers.RepeatedCompositeFieldContainer[LostOutput]
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[LostOutput, _Mapping]]] = ...) -> None: ...

class LostOutput(_message.Message):
    __slots__ = ("shuffle", "output", "reason")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shuffle: _flight_shuffle_pb2.ShuffleKey
    output: _flight_shuffle_pb2.MapAttempt
    reason: str
    def __init__(self, shuffle: _Optional[_Union[_flight_shuffle_pb2.ShuffleKey, _Mapping]] = ..., output: _Optional[_Union[_flight_shuffle_pb2.MapAttempt, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class LoseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("identity", "outputs")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    outputs: _containers.RepeatedCompositeFieldContainer[HeldOutput]
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[HeldOutput, _Mapping]]] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: _containers.RepeatedCompositeFieldContainer[HeldOutput]
    def __init__(self, released: _Optional[_Iterable[_Union[HeldOutput, _Mapping]]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ("left", "outputs", "bytes", "staged", "pushes", "others")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    left: bool
    outputs: int
    bytes: int
    staged: int
    pushes: int
    others: int
    def __init__(self, left: _Optional[bool] = ..., outputs: _Optional[int] = ..., bytes: _Optional[int] = ..., staged: _Optional[int] = ..., pushes: _Optional[int] = ..., others: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
