"""Flight actions: what the master, or another worker, has a worker do. For the cluster's token and its workers' only.

They are of one release, as `registry.proto` is; no client uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.store.partition_sizes import PartitionSizes
from shuffle_transport import messages
from shuffle_transport.security import Principal

VERIFY = "verify"
REPLICATE = "replicate"
PARTITION_SIZES = "partition-sizes"


class Acting(Protocol):
    """What a worker can be told to do."""

    def verify(self, shuffle: ShuffleId, output: MapAttempt) -> str | None: ...
    def replicate(self, shuffle: ShuffleId, output: MapAttempt) -> None: ...
    def partition_sizes(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt], partitions: int) -> PartitionSizes: ...


def act(worker: Acting, principal: Principal, action: str, body: bytes) -> bytes:
    """Do it; the answer. Raises InvalidArgument, PermissionDenied, and what the worker raises."""
    principal.check_member(f"actions such as {action!r}")
    if action not in _ACTIONS:
        raise InvalidArgument(f"unknown action {action!r}", remedy=f"known: {', '.join(sorted(_ACTIONS))}")
    return _ACTIONS[action](worker, body)


def _verify(worker: Acting, body: bytes) -> bytes:
    asked = messages.parse(pb.HeldOutput, body)
    reason = worker.verify(messages.shuffle_id(asked.shuffle), messages.map_attempt(asked.output))
    return pb.Verified(bad=reason is not None, reason=reason or "").SerializeToString()


def _replicate(worker: Acting, body: bytes) -> bytes:
    asked = messages.parse(pb.HeldOutput, body)
    worker.replicate(messages.shuffle_id(asked.shuffle), messages.map_attempt(asked.output))
    return b""


def _partition_sizes(worker: Acting, body: bytes) -> bytes:
    asked = messages.parse(pb.SizesRequest, body)
    outputs = [messages.map_attempt(each) for each in asked.outputs]
    sizes = worker.partition_sizes(messages.shuffle_id(asked.shuffle), outputs, asked.partitions)
    return pb.SizesReply(outputs=sizes.outputs, bytes=sizes.bytes).SerializeToString()


_ACTIONS: dict[str, Callable[[Acting, bytes], bytes]] = {
    VERIFY: _verify,
    REPLICATE: _replicate,
    PARTITION_SIZES: _partition_sizes,
}
