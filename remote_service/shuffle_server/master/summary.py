"""Runs and shuffles in numbers, as `Status` shows them."""

from __future__ import annotations

from shuffle_api.ids import name_of
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_server.master.master import Master
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb


def summary(master: Master, only: str) -> tuple[list[pb.AppStatus], list[pb.ShuffleStatus]]:
    """The runs and their shuffles: all, or those of one application or of one run (`only`)."""
    apps: list[pb.AppStatus] = []
    shuffles: list[pb.ShuffleStatus] = []
    with master.lock:
        registry = master.registry
        for app in registry.apps():
            if only and only not in (app.app, name_of(app.app)):
                continue
            own = [_shuffle(spec, registry.map_outputs(spec.id)[0]) for spec in registry.shuffles(app.app)]
            shuffles += own
            apps.append(
                pb.AppStatus(
                    app=app.app,
                    name=app.name,
                    idle_seconds=master.idle(app.app),
                    shuffles=len(own),
                    bytes=sum(shuffle.totals.bytes for shuffle in own),
                )
            )
    return apps, shuffles


def _shuffle(spec: ShuffleSpec, outputs: list[MapOutput]) -> pb.ShuffleStatus:
    return pb.ShuffleStatus(
        shuffle=messages.key_of(spec.id),
        partitions=spec.partitions,
        maps=spec.maps,
        committed=len(outputs),
        totals=pb.Totals(
            blocks=sum(o.totals.blocks for o in outputs),
            bytes=sum(o.totals.bytes for o in outputs),
            raw_bytes=sum(o.totals.raw_bytes for o in outputs),
            records=sum(o.totals.records for o in outputs),
        ),
        replicas=spec.replicas,
        degraded=sum(len(o.workers) < spec.replicas for o in outputs),
    )
