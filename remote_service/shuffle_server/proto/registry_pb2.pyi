from shuffle_transport.proto import flight_shuffle_pb2 as _flight_shuffle_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommitRequest(_message.Message):
    __slots__ = ("epoch", "commits")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    def __init__(self, epoch: _Optional[int] = ..., commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ...) -> None: ...

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
