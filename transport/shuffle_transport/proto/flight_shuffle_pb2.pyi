from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INTERNAL: _ClassVar[ErrorCode]
    INVALID_ARGUMENT: _ClassVar[ErrorCode]
    PROTOCOL_MISMATCH: _ClassVar[ErrorCode]
    UNKNOWN_APP: _ClassVar[ErrorCode]
    APP_EXPIRED: _ClassVar[ErrorCode]
    APP_EXISTS: _ClassVar[ErrorCode]
    UNKNOWN_SHUFFLE: _ClassVar[ErrorCode]
    SHUFFLE_EXISTS: _ClassVar[ErrorCode]
    MAP_OUTPUT_NOT_WRITTEN: _ClassVar[ErrorCode]
    MAP_OUTPUT_LOST: _ClassVar[ErrorCode]
    ATTEMPT_SUPERSEDED: _ClassVar[ErrorCode]
    COMMIT_MISMATCH: _ClassVar[ErrorCode]
    BLOCK_CORRUPT: _ClassVar[ErrorCode]
    STORAGE_FULL: _ClassVar[ErrorCode]
    STORAGE_FAILED: _ClassVar[ErrorCode]
    OVERLOADED: _ClassVar[ErrorCode]
    SHUTTING_DOWN: _ClassVar[ErrorCode]
    UNAUTHENTICATED: _ClassVar[ErrorCode]
    PERMISSION_DENIED: _ClassVar[ErrorCode]
    DEADLINE: _ClassVar[ErrorCode]
    STALE_EPOCH: _ClassVar[ErrorCode]
    QUOTA_EXCEEDED: _ClassVar[ErrorCode]
    WRONG_MASTER: _ClassVar[ErrorCode]
INTERNAL: ErrorCode
INVALID_ARGUMENT: ErrorCode
PROTOCOL_MISMATCH: ErrorCode
UNKNOWN_APP: ErrorCode
APP_EXPIRED: ErrorCode
APP_EXISTS: ErrorCode
UNKNOWN_SHUFFLE: ErrorCode
SHUFFLE_EXISTS: ErrorCode
MAP_OUTPUT_NOT_WRITTEN: ErrorCode
MAP_OUTPUT_LOST: ErrorCode
ATTEMPT_SUPERSEDED: ErrorCode
COMMIT_MISMATCH: ErrorCode
BLOCK_CORRUPT: ErrorCode
STORAGE_FULL: ErrorCode
STORAGE_FAILED: ErrorCode
OVERLOADED: ErrorCode
SHUTTING_DOWN: ErrorCode
UNAUTHENTICATED: ErrorCode
PERMISSION_DENIED: ErrorCode
DEADLINE: ErrorCode
STALE_EPOCH: ErrorCode
QUOTA_EXCEEDED: ErrorCode
WRONG_MASTER: ErrorCode

class ShuffleKey(_message.Message):
    __slots__ = ("app", "shuffle", "generation")
    APP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    app: str
    shuffle: int
    generation: int
    def __init__(self, app: _Optional[str] = ..., shuffle: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class MapAttempt(_message.Message):
    __slots__ = ("map", "attempt")
    MAP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    map: int
    attempt: int
    def __init__(self, map: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "remedy", "worker", "shuffle", "output", "masters")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    remedy: str
    worker: str
    shuffle: ShuffleKey
    output: MapAttempt
    masters: str
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., remedy: _Optional[str] = ..., worker: _Optional[str] = ..., shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., output: _Optional[_Union[MapAttempt, _Mapping]] = ..., masters: _Optional[str] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("blocks", "bytes", "raw_bytes", "records", "digest")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    blocks: int
    bytes: int
    raw_bytes: int
    records: int
    digest: int
    def __init__(self, blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., raw_bytes: _Optional[int] = ..., records: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class PutCommand(_message.Message):
    __slots__ = ("protocol", "shuffle", "output", "partitions", "codec", "first_block", "relay", "copy")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    shuffle: ShuffleKey
    output: MapAttempt
    partitions: int
    codec: str
    first_block: int
    relay: bool
    copy: bool
    def __init__(self, protocol: _Optional[int] = ..., shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., output: _Optional[_Union[MapAttempt, _Mapping]] = ..., partitions: _Optional[int] = ..., codec: _Optional[str] = ..., first_block: _Optional[int] = ..., relay: _Optional[bool] = ..., copy: _Optional[bool] = ...) -> None: ...

class PutControl(_message.Message):
    __slots__ = ("backlog", "end", "commit", "abort", "ends")
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    backlog: int
    end: Totals
    commit: bool
    abort: bool
    ends: _containers.RepeatedCompositeFieldContainer[PartitionEnd]
    def __init__(self, backlog: _Optional[int] = ..., end: _Optional[_Union[Totals, _Mapping]] = ..., commit: _Optional[bool] = ..., abort: _Optional[bool] = ..., ends: _Optional[_Iterable[_Union[PartitionEnd, _Mapping]]] = ...) -> None: ...

class PartitionEnd(_message.Message):
    __slots__ = ("partition", "totals")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    totals: Totals
    def __init__(self, partition: _Optional[int] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ...) -> None: ...

class PutReply(_message.Message):
    __slots__ = ("granted", "blocks_held", "committed", "error")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_HELD_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    granted: int
    blocks_held: int
    committed: Committed
    error: Error
    def __init__(self, granted: _Optional[int] = ..., blocks_held: _Optional[int] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("output", "worker", "totals", "path")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    output: MapAttempt
    worker: str
    totals: Totals
    path: str
    def __init__(self, output: _Optional[_Union[MapAttempt, _Mapping]] = ..., worker: _Optional[str] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., path: _Optional[str] = ...) -> None: ...

class WholePut(_message.Message):
    __slots__ = ("command", "end", "table", "payload", "nonce")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    command: PutCommand
    end: Totals
    table: bytes
    payload: bytes
    nonce: bytes
    def __init__(self, command: _Optional[_Union[PutCommand, _Mapping]] = ..., end: _Optional[_Union[Totals, _Mapping]] = ..., table: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class GetTicket(_message.Message):
    __slots__ = ("shuffle", "first_partition", "end_partition", "maps", "ranges", "relay")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_PARTITION_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    first_partition: int
    end_partition: int
    maps: _containers.RepeatedCompositeFieldContainer[MapAttempt]
    ranges: _containers.RepeatedCompositeFieldContainer[MapRange]
    relay: RelayReader
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., first_partition: _Optional[int] = ..., end_partition: _Optional[int] = ..., maps: _Optional[_Iterable[_Union[MapAttempt, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[MapRange, _Mapping]]] = ..., relay: _Optional[_Union[RelayReader, _Mapping]] = ...) -> None: ...

class WholeGet(_message.Message):
    __slots__ = ("stream", "maps", "attempts", "table", "end", "payload")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    stream: bool
    maps: bytes
    attempts: bytes
    table: bytes
    end: Totals
    payload: bytes
    def __init__(self, stream: _Optional[bool] = ..., maps: _Optional[bytes] = ..., attempts: _Optional[bytes] = ..., table: _Optional[bytes] = ..., end: _Optional[_Union[Totals, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class RelayReader(_message.Message):
    __slots__ = ("attempt",)
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    def __init__(self, attempt: _Optional[int] = ...) -> None: ...

class MapRange(_message.Message):
    __slots__ = ("map", "attempt", "first_partition", "end_partition")
    MAP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_PARTITION_FIELD_NUMBER: _ClassVar[int]
    map: int
    attempt: int
    first_partition: int
    end_partition: int
    def __init__(self, map: _Optional[int] = ..., attempt: _Optional[int] = ..., first_partition: _Optional[int] = ..., end_partition: _Optional[int] = ...) -> None: ...

class GetControl(_message.Message):
    __slots__ = ("end", "error", "map_end")
    END_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MAP_END_FIELD_NUMBER: _ClassVar[int]
    end: Totals
    error: Error
    map_end: MapEnd
    def __init__(self, end: _Optional[_Union[Totals, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., map_end: _Optional[_Union[MapEnd, _Mapping]] = ...) -> None: ...

class MapEnd(_message.Message):
    __slots__ = ("output", "totals")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    output: MapAttempt
    totals: Totals
    def __init__(self, output: _Optional[_Union[MapAttempt, _Mapping]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ...) -> None: ...

class ScrubRequest(_message.Message):
    __slots__ = ("app", "rate")
    APP_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    app: str
    rate: int
    def __init__(self, app: _Optional[str] = ..., rate: _Optional[int] = ...) -> None: ...

class ScrubProgress(_message.Message):
    __slots__ = ("worker", "outputs", "blocks", "bytes", "findings", "done")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    outputs: int
    blocks: int
    bytes: int
    findings: _containers.RepeatedCompositeFieldContainer[ScrubFinding]
    done: bool
    def __init__(self, worker: _Optional[str] = ..., outputs: _Optional[int] = ..., blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., findings: _Optional[_Iterable[_Union[ScrubFinding, _Mapping]]] = ..., done: _Optional[bool] = ...) -> None: ...

class ScrubFinding(_message.Message):
    __slots__ = ("shuffle", "output", "reason")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    output: MapAttempt
    reason: str
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., output: _Optional[_Union[MapAttempt, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class ExchangeCommand(_message.Message):
    __slots__ = ("protocol", "channel", "metadata", "codec", "session", "resumed", "keepalive_ms", "relay")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_MS_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    channel: str
    metadata: bytes
    codec: str
    session: bytes
    resumed: bool
    keepalive_ms: int
    relay: RelayRoute
    def __init__(self, protocol: _Optional[int] = ..., channel: _Optional[str] = ..., metadata: _Optional[bytes] = ..., codec: _Optional[str] = ..., session: _Optional[bytes] = ..., resumed: _Optional[bool] = ..., keepalive_ms: _Optional[int] = ..., relay: _Optional[_Union[RelayRoute, _Mapping]] = ...) -> None: ...

class RelayRoute(_message.Message):
    __slots__ = ("to", "wait_ms", "token", "app", "listen", "answer")
    TO_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    LISTEN_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    to: bytes
    wait_ms: int
    token: str
    app: str
    listen: bytes
    answer: bytes
    def __init__(self, to: _Optional[bytes] = ..., wait_ms: _Optional[int] = ..., token: _Optional[str] = ..., app: _Optional[str] = ..., listen: _Optional[bytes] = ..., answer: _Optional[bytes] = ...) -> None: ...

class RelayCall(_message.Message):
    __slots__ = ("call", "command", "peer")
    CALL_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    call: bytes
    command: bytes
    peer: str
    def __init__(self, call: _Optional[bytes] = ..., command: _Optional[bytes] = ..., peer: _Optional[str] = ...) -> None: ...

class ExchangeControl(_message.Message):
    __slots__ = ("message", "end", "granted", "held", "backlog", "first", "ping", "error", "rows", "payload", "you", "spent", "broken", "leave")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    YOU_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    end: Totals
    granted: int
    held: int
    backlog: int
    first: int
    ping: bool
    error: Error
    rows: bytes
    payload: bytes
    you: str
    spent: int
    broken: bool
    leave: bool
    def __init__(self, message: _Optional[bytes] = ..., end: _Optional[_Union[Totals, _Mapping]] = ..., granted: _Optional[int] = ..., held: _Optional[int] = ..., backlog: _Optional[int] = ..., first: _Optional[int] = ..., ping: _Optional[bool] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., rows: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., you: _Optional[str] = ..., spent: _Optional[int] = ..., broken: _Optional[bool] = ..., leave: _Optional[bool] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("protocol", "app")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    app: str
    def __init__(self, protocol: _Optional[int] = ..., app: _Optional[str] = ...) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("nonce_file",)
    NONCE_FILE_FIELD_NUMBER: _ClassVar[int]
    nonce_file: str
    def __init__(self, nonce_file: _Optional[str] = ...) -> None: ...

class LendRequest(_message.Message):
    __slots__ = ("nonce", "command", "bytes", "more")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    command: PutCommand
    bytes: int
    more: bool
    def __init__(self, nonce: _Optional[bytes] = ..., command: _Optional[_Union[PutCommand, _Mapping]] = ..., bytes: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class LendReply(_message.Message):
    __slots__ = ("path", "committed")
    PATH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    path: str
    committed: Committed
    def __init__(self, path: _Optional[str] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ...) -> None: ...

class AdoptRequest(_message.Message):
    __slots__ = ("nonce", "command", "end", "table")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    command: PutCommand
    end: Totals
    table: bytes
    def __init__(self, nonce: _Optional[bytes] = ..., command: _Optional[_Union[PutCommand, _Mapping]] = ..., end: _Optional[_Union[Totals, _Mapping]] = ..., table: _Optional[bytes] = ...) -> None: ...

class LocateBlocksRequest(_message.Message):
    __slots__ = ("nonce", "ticket", "whole_below", "together")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    WHOLE_BELOW_FIELD_NUMBER: _ClassVar[int]
    TOGETHER_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    ticket: GetTicket
    whole_below: int
    together: bool
    def __init__(self, nonce: _Optional[bytes] = ..., ticket: _Optional[_Union[GetTicket, _Mapping]] = ..., whole_below: _Optional[int] = ..., together: _Optional[bool] = ...) -> None: ...

class LocatedBlocks(_message.Message):
    __slots__ = ("output", "path", "index", "error", "whole", "ranges")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    output: MapAttempt
    path: str
    index: bytes
    error: Error
    whole: bool
    ranges: _containers.RepeatedCompositeFieldContainer[LocatedBlocks]
    def __init__(self, output: _Optional[_Union[MapAttempt, _Mapping]] = ..., path: _Optional[str] = ..., index: _Optional[bytes] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., whole: _Optional[bool] = ..., ranges: _Optional[_Iterable[_Union[LocatedBlocks, _Mapping]]] = ...) -> None: ...

class TellReadsRequest(_message.Message):
    __slots__ = ("nonce", "reads")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    reads: _containers.RepeatedCompositeFieldContainer[FileReads]
    def __init__(self, nonce: _Optional[bytes] = ..., reads: _Optional[_Iterable[_Union[FileReads, _Mapping]]] = ...) -> None: ...

class FileReads(_message.Message):
    __slots__ = ("shuffle", "blocks", "bytes")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    blocks: int
    bytes: int
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., blocks: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ("protocol", "client", "oldest", "known", "app")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    client: str
    oldest: int
    known: WorkersKnown
    app: str
    def __init__(self, protocol: _Optional[int] = ..., client: _Optional[str] = ..., oldest: _Optional[int] = ..., known: _Optional[_Union[WorkersKnown, _Mapping]] = ..., app: _Optional[str] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("protocol", "server", "epoch", "workers", "unix_seconds", "changes", "registry")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    server: str
    epoch: int
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    unix_seconds: float
    changes: WorkerChanges
    registry: str
    def __init__(self, protocol: _Optional[int] = ..., server: _Optional[str] = ..., epoch: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., unix_seconds: _Optional[float] = ..., changes: _Optional[_Union[WorkerChanges, _Mapping]] = ..., registry: _Optional[str] = ...) -> None: ...

class WorkersKnown(_message.Message):
    __slots__ = ("epoch", "version")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: int
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class WorkerChanges(_message.Message):
    __slots__ = ("epoch", "version", "all", "workers", "gone")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: int
    all: bool
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[int] = ..., all: _Optional[bool] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., gone: _Optional[_Iterable[str]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("id", "host", "port", "free_bytes", "draining", "silent", "labels")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    port: int
    free_bytes: int
    draining: bool
    silent: bool
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., free_bytes: _Optional[int] = ..., draining: _Optional[bool] = ..., silent: _Optional[bool] = ..., labels: _Optional[_Iterable[str]] = ...) -> None: ...

class Driver(_message.Message):
    __slots__ = ("user", "host", "began")
    USER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    user: str
    host: str
    began: float
    def __init__(self, user: _Optional[str] = ..., host: _Optional[str] = ..., began: _Optional[float] = ...) -> None: ...

class RegisterAppRequest(_message.Message):
    __slots__ = ("app", "instance", "name", "known", "only", "driver")
    APP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    app: str
    instance: str
    name: str
    known: WorkersKnown
    only: str
    driver: Driver
    def __init__(self, app: _Optional[str] = ..., instance: _Optional[str] = ..., name: _Optional[str] = ..., known: _Optional[_Union[WorkersKnown, _Mapping]] = ..., only: _Optional[str] = ..., driver: _Optional[_Union[Driver, _Mapping]] = ...) -> None: ...

class RegisterAppReply(_message.Message):
    __slots__ = ("epoch", "workers", "heartbeat_seconds", "changes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    heartbeat_seconds: int
    changes: WorkerChanges
    def __init__(self, epoch: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., heartbeat_seconds: _Optional[int] = ..., changes: _Optional[_Union[WorkerChanges, _Mapping]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("app", "known", "driver")
    APP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    app: str
    known: WorkersKnown
    driver: Driver
    def __init__(self, app: _Optional[str] = ..., known: _Optional[_Union[WorkersKnown, _Mapping]] = ..., driver: _Optional[_Union[Driver, _Mapping]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("epoch", "workers", "changes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    changes: WorkerChanges
    def __init__(self, epoch: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., changes: _Optional[_Union[WorkerChanges, _Mapping]] = ...) -> None: ...

class UnregisterAppRequest(_message.Message):
    __slots__ = ("app",)
    APP_FIELD_NUMBER: _ClassVar[int]
    app: str
    def __init__(self, app: _Optional[str] = ...) -> None: ...

class UnregisterAppReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegisterShuffleRequest(_message.Message):
    __slots__ = ("shuffle", "partitions", "maps", "codec", "content", "replicas", "known")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    partitions: int
    maps: int
    codec: str
    content: str
    replicas: int
    known: WorkersKnown
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., codec: _Optional[str] = ..., content: _Optional[str] = ..., replicas: _Optional[int] = ..., known: _Optional[_Union[WorkersKnown, _Mapping]] = ...) -> None: ...

class RegisterShuffleReply(_message.Message):
    __slots__ = ("epoch", "workers", "generation", "changes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    generation: int
    changes: WorkerChanges
    def __init__(self, epoch: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., generation: _Optional[int] = ..., changes: _Optional[_Union[WorkerChanges, _Mapping]] = ...) -> None: ...

class UnregisterShuffleRequest(_message.Message):
    __slots__ = ("shuffle", "more", "generations")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    more: _containers.RepeatedScalarFieldContainer[int]
    generations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., more: _Optional[_Iterable[int]] = ..., generations: _Optional[_Iterable[int]] = ...) -> None: ...

class UnregisterShuffleReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlaceRequest(_message.Message):
    __slots__ = ("shuffle", "host", "avoid", "near", "copy_from")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    COPY_FROM_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    host: str
    avoid: _containers.RepeatedScalarFieldContainer[str]
    near: str
    copy_from: str
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., host: _Optional[str] = ..., avoid: _Optional[_Iterable[str]] = ..., near: _Optional[str] = ..., copy_from: _Optional[str] = ...) -> None: ...

class PlaceReply(_message.Message):
    __slots__ = ("workers", "good_for_ms", "in_turn")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GOOD_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    IN_TURN_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    good_for_ms: int
    in_turn: int
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., good_for_ms: _Optional[int] = ..., in_turn: _Optional[int] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("shuffle", "first_map", "end_map", "page", "known_epoch", "known_version")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    FIRST_MAP_FIELD_NUMBER: _ClassVar[int]
    END_MAP_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    first_map: int
    end_map: int
    page: int
    known_epoch: int
    known_version: int
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., first_map: _Optional[int] = ..., end_map: _Optional[int] = ..., page: _Optional[int] = ..., known_epoch: _Optional[int] = ..., known_version: _Optional[int] = ...) -> None: ...

class LocateReply(_message.Message):
    __slots__ = ("outputs", "next_map", "more", "workers", "partitions", "maps", "codec", "content", "lost", "generation", "replicas", "epoch", "version", "unchanged")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MAP_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[MapOutput]
    next_map: int
    more: bool
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    partitions: int
    maps: int
    codec: str
    content: str
    lost: _containers.RepeatedCompositeFieldContainer[MapOutput]
    generation: int
    replicas: int
    epoch: int
    version: int
    unchanged: bool
    def __init__(self, outputs: _Optional[_Iterable[_Union[MapOutput, _Mapping]]] = ..., next_map: _Optional[int] = ..., more: _Optional[bool] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., codec: _Optional[str] = ..., content: _Optional[str] = ..., lost: _Optional[_Iterable[_Union[MapOutput, _Mapping]]] = ..., generation: _Optional[int] = ..., replicas: _Optional[int] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., unchanged: _Optional[bool] = ...) -> None: ...

class MapOutput(_message.Message):
    __slots__ = ("output", "worker", "totals", "copies")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    output: MapAttempt
    worker: str
    totals: Totals
    copies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, output: _Optional[_Union[MapAttempt, _Mapping]] = ..., worker: _Optional[str] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., copies: _Optional[_Iterable[str]] = ...) -> None: ...

class ReportLostRequest(_message.Message):
    __slots__ = ("shuffle", "outputs", "reason")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    outputs: _containers.RepeatedCompositeFieldContainer[MapAttempt]
    reason: str
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[MapAttempt, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class ReportLostReply(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedCompositeFieldContainer[MapAttempt]
    def __init__(self, lost: _Optional[_Iterable[_Union[MapAttempt, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("shuffle",)
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ...) -> None: ...

class WatchReply(_message.Message):
    __slots__ = ("epoch", "generation", "lost", "moved")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    generation: int
    lost: _containers.RepeatedCompositeFieldContainer[LostMapOutput]
    moved: _containers.RepeatedCompositeFieldContainer[MapOutput]
    def __init__(self, epoch: _Optional[int] = ..., generation: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LostMapOutput, _Mapping]]] = ..., moved: _Optional[_Iterable[_Union[MapOutput, _Mapping]]] = ...) -> None: ...

class LostMapOutput(_message.Message):
    __slots__ = ("output", "worker", "reason")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    output: MapAttempt
    worker: Worker
    reason: str
    def __init__(self, output: _Optional[_Union[MapAttempt, _Mapping]] = ..., worker: _Optional[_Union[Worker, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("app", "first", "limit")
    APP_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    app: str
    first: int
    limit: int
    def __init__(self, app: _Optional[str] = ..., first: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("server", "epoch", "uptime_seconds", "workers", "shuffles", "apps", "bytes_pushed", "bytes_pulled", "states", "next", "lost", "workers_lost", "outputs_lost", "registry", "registries")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    APPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PUSHED_FIELD_NUMBER: _ClassVar[int]
    BYTES_PULLED_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    WORKERS_LOST_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_LOST_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    REGISTRIES_FIELD_NUMBER: _ClassVar[int]
    server: str
    epoch: int
    uptime_seconds: float
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    shuffles: _containers.RepeatedCompositeFieldContainer[ShuffleStatus]
    apps: _containers.RepeatedCompositeFieldContainer[AppStatus]
    bytes_pushed: int
    bytes_pulled: int
    states: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    next: int
    lost: _containers.RepeatedCompositeFieldContainer[LostWorker]
    workers_lost: int
    outputs_lost: int
    registry: str
    registries: _containers.RepeatedCompositeFieldContainer[RegistryAddress]
    def __init__(self, server: _Optional[str] = ..., epoch: _Optional[int] = ..., uptime_seconds: _Optional[float] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., shuffles: _Optional[_Iterable[_Union[ShuffleStatus, _Mapping]]] = ..., apps: _Optional[_Iterable[_Union[AppStatus, _Mapping]]] = ..., bytes_pushed: _Optional[int] = ..., bytes_pulled: _Optional[int] = ..., states: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., next: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LostWorker, _Mapping]]] = ..., workers_lost: _Optional[int] = ..., outputs_lost: _Optional[int] = ..., registry: _Optional[str] = ..., registries: _Optional[_Iterable[_Union[RegistryAddress, _Mapping]]] = ...) -> None: ...

class RegistryAddress(_message.Message):
    __slots__ = ("name", "masters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    masters: str
    def __init__(self, name: _Optional[str] = ..., masters: _Optional[str] = ...) -> None: ...

class LostWorker(_message.Message):
    __slots__ = ("worker", "address", "seconds", "reason")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    worker: str
    address: str
    seconds: float
    reason: str
    def __init__(self, worker: _Optional[str] = ..., address: _Optional[str] = ..., seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker", "memory_budget", "memory_used", "waiting_streams", "open_pushes", "open_pulls", "staged_outputs", "staged_bytes", "spare_bytes", "disks", "bytes_pushed", "bytes_pulled", "disk_bound", "compactions", "relay", "release", "credit_stalls", "credit_stall_seconds")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BUDGET_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    WAITING_STREAMS_FIELD_NUMBER: _ClassVar[int]
    OPEN_PUSHES_FIELD_NUMBER: _ClassVar[int]
    OPEN_PULLS_FIELD_NUMBER: _ClassVar[int]
    STAGED_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PUSHED_FIELD_NUMBER: _ClassVar[int]
    BYTES_PULLED_FIELD_NUMBER: _ClassVar[int]
    DISK_BOUND_FIELD_NUMBER: _ClassVar[int]
    COMPACTIONS_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_STALLS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    memory_budget: int
    memory_used: int
    waiting_streams: int
    open_pushes: int
    open_pulls: int
    staged_outputs: int
    staged_bytes: int
    spare_bytes: int
    disks: _containers.RepeatedCompositeFieldContainer[DiskStatus]
    bytes_pushed: int
    bytes_pulled: int
    disk_bound: bool
    compactions: _containers.RepeatedCompositeFieldContainer[ShuffleCompaction]
    relay: RelayStatus
    release: str
    credit_stalls: int
    credit_stall_seconds: float
    def __init__(self, worker: _Optional[str] = ..., memory_budget: _Optional[int] = ..., memory_used: _Optional[int] = ..., waiting_streams: _Optional[int] = ..., open_pushes: _Optional[int] = ..., open_pulls: _Optional[int] = ..., staged_outputs: _Optional[int] = ..., staged_bytes: _Optional[int] = ..., spare_bytes: _Optional[int] = ..., disks: _Optional[_Iterable[_Union[DiskStatus, _Mapping]]] = ..., bytes_pushed: _Optional[int] = ..., bytes_pulled: _Optional[int] = ..., disk_bound: _Optional[bool] = ..., compactions: _Optional[_Iterable[_Union[ShuffleCompaction, _Mapping]]] = ..., relay: _Optional[_Union[RelayStatus, _Mapping]] = ..., release: _Optional[str] = ..., credit_stalls: _Optional[int] = ..., credit_stall_seconds: _Optional[float] = ...) -> None: ...

class RelayStatus(_message.Message):
    __slots__ = ("tasks", "channels", "held_bytes", "messages", "bytes", "streams")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    channels: int
    held_bytes: int
    messages: int
    bytes: int
    streams: _containers.RepeatedCompositeFieldContainer[StreamStatus]
    def __init__(self, tasks: _Optional[int] = ..., channels: _Optional[int] = ..., held_bytes: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[StreamStatus, _Mapping]]] = ...) -> None: ...

class StreamStatus(_message.Message):
    __slots__ = ("shuffle", "writers", "readers", "totals", "queued_records", "queued_bytes", "lag_seconds")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    writers: int
    readers: int
    totals: Totals
    queued_records: int
    queued_bytes: int
    lag_seconds: float
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., writers: _Optional[int] = ..., readers: _Optional[int] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., queued_records: _Optional[int] = ..., queued_bytes: _Optional[int] = ..., lag_seconds: _Optional[float] = ...) -> None: ...

class ShuffleCompaction(_message.Message):
    __slots__ = ("shuffle", "compacted", "large_blocks", "failed", "pending_bytes")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    LARGE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PENDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    compacted: int
    large_blocks: int
    failed: int
    pending_bytes: int
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., compacted: _Optional[int] = ..., large_blocks: _Optional[int] = ..., failed: _Optional[int] = ..., pending_bytes: _Optional[int] = ...) -> None: ...

class DiskStatus(_message.Message):
    __slots__ = ("path", "size", "used", "free", "out", "seek_bytes", "device")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    OUT_FIELD_NUMBER: _ClassVar[int]
    SEEK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    used: int
    free: int
    out: str
    seek_bytes: int
    device: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., used: _Optional[int] = ..., free: _Optional[int] = ..., out: _Optional[str] = ..., seek_bytes: _Optional[int] = ..., device: _Optional[str] = ...) -> None: ...

class AppStatus(_message.Message):
    __slots__ = ("app", "name", "idle_seconds", "shuffles", "bytes", "driver")
    APP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    app: str
    name: str
    idle_seconds: float
    shuffles: int
    bytes: int
    driver: Driver
    def __init__(self, app: _Optional[str] = ..., name: _Optional[str] = ..., idle_seconds: _Optional[float] = ..., shuffles: _Optional[int] = ..., bytes: _Optional[int] = ..., driver: _Optional[_Union[Driver, _Mapping]] = ...) -> None: ...

class ShuffleStatus(_message.Message):
    __slots__ = ("shuffle", "partitions", "maps", "committed", "totals", "replicas", "degraded")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleKey
    partitions: int
    maps: int
    committed: int
    totals: Totals
    replicas: int
    degraded: int
    def __init__(self, shuffle: _Optional[_Union[ShuffleKey, _Mapping]] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., committed: _Optional[int] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., replicas: _Optional[int] = ..., degraded: _Optional[int] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class EventsReply(_message.Message):
    __slots__ = ("epoch", "events")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    events: _containers.RepeatedCompositeFieldContainer[ClusterEvent]
    def __init__(self, epoch: _Optional[int] = ..., events: _Optional[_Iterable[_Union[ClusterEvent, _Mapping]]] = ...) -> None: ...

class ClusterEvent(_message.Message):
    __slots__ = ("number", "unix_seconds", "kind", "worker", "app", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    unix_seconds: float
    kind: str
    worker: str
    app: str
    text: str
    def __init__(self, number: _Optional[int] = ..., unix_seconds: _Optional[float] = ..., kind: _Optional[str] = ..., worker: _Optional[str] = ..., app: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
