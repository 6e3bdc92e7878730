"""A worker's memory, disks and streams as a message, for Status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from shuffle_server import __version__
from shuffle_server.observe.traffic import TrafficTotals
from shuffle_server.store.compaction_model import COMPACTED, FAILED, LARGE
from shuffle_server.store.statistics import StoreStatistics
from shuffle_server.worker.relay.channel_relay import ChannelRelayStatistics
from shuffle_server.worker.relay.values import RelayStatistics
from shuffle_transport import messages
from shuffle_transport.pool import PoolStatistics
from shuffle_transport.proto import flight_shuffle_pb2 as pb

Relayed: TypeAlias = Callable[[], pb.RelayStatus | None]

MOST_STREAMS = 64
"""Streaming shuffles that a status names."""


def relay_status(relay: RelayStatistics, channels: ChannelRelayStatistics) -> pb.RelayStatus | None:
    """What a worker passes on between running tasks; None: nothing."""
    if not (relay.streams or channels.tasks or channels.channels):
        return None
    largest = sorted(relay.streams, key=lambda each: (-each.queued_bytes, str(each.shuffle)))[:MOST_STREAMS]
    return pb.RelayStatus(
        tasks=channels.tasks,
        channels=channels.channels,
        held_bytes=channels.held_bytes,
        messages=channels.messages,
        bytes=channels.bytes,
        streams=(
            pb.StreamStatus(
                shuffle=messages.key_of(each.shuffle),
                writers=each.writers,
                readers=each.readers,
                totals=messages.totals_message(each.totals),
                queued_records=each.queued_records,
                queued_bytes=each.queued_bytes,
                lag_seconds=each.lag_seconds,
            )
            for each in largest
        ),
    )


def worker_status(
    worker: str, pool: PoolStatistics, store: StoreStatistics, traffic: TrafficTotals, relay: pb.RelayStatus | None
) -> pb.WorkerStatus:
    """What worker `worker` holds and does at this moment."""
    return pb.WorkerStatus(
        worker=worker,
        release=__version__,
        memory_budget=pool.budget,
        memory_used=pool.used,
        waiting_streams=pool.waiting,
        open_pushes=traffic.open_pushes,
        open_pulls=traffic.open_pulls,
        staged_outputs=store.staged_outputs,
        staged_bytes=store.staged_bytes,
        spare_bytes=store.spare_bytes,
        bytes_pushed=traffic.pushed_bytes,
        bytes_pulled=traffic.pulled_bytes,
        credit_stalls=traffic.credit_stalls,
        credit_stall_seconds=traffic.credit_stall_seconds,
        disks=(
            pb.DiskStatus(
                path=disk.path,
                size=disk.size,
                used=disk.used,
                free=disk.free,
                out=disk.out,
                seek_bytes=disk.seek_bytes,
                device=disk.device,
            )
            for disk in store.disks
        ),
        relay=relay,
        disk_bound=store.compaction.disk_bound,
        compactions=(
            pb.ShuffleCompaction(
                shuffle=messages.key_of(each.shuffle),
                compacted=each.decisions.get(COMPACTED, 0),
                large_blocks=each.decisions.get(LARGE, 0),
                failed=each.decisions.get(FAILED, 0),
                pending_bytes=each.pending,
            )
            for each in store.compaction.shuffles
        ),
    )
