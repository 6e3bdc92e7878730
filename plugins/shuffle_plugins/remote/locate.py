"""Asking the master where committed map outputs lie."""

from __future__ import annotations

from collections.abc import Sequence

from shuffle_api.errors import MapOutputLost, MapOutputNotWritten, ProtocolMismatch
from shuffle_api.values import MapOutput, ShuffleSpec, name_numbers
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.locate_cache import Located
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb


def locate(connection: Connection, spec: ShuffleSpec, maps: range | None, *, anew: bool = False) -> Located:
    """All pages of the outputs of `maps` (None: all). Raises UnknownApp, AppExpired, UnknownShuffle.

    :param anew: have the workers named again: one may be at another address.
    """
    wanted = range(spec.maps) if maps is None else maps
    known = None if anew else connection.located.find(spec.id, wanted)
    outputs: list[MapOutput] = []
    lost: list[MapOutput] = []
    versions: set[tuple[int, int]] = set()  # of the pages
    first, more = wanted.start, bool(wanted)
    while more:
        request = pb.LocateRequest(shuffle=messages.key_of(spec.id), first_map=first, end_map=wanted.stop)
        if known is not None and not versions:
            request.known_epoch, request.known_version = known.epoch, known.version
        reply: pb.LocateReply = connection.control.call("Locate", request)
        if reply.unchanged and known is not None:
            return known
        connection.workers.add(reply.workers)
        outputs += map(messages.map_output, reply.outputs)
        lost += map(messages.map_output, reply.lost)
        versions.add((reply.epoch, reply.version))
        if reply.more and reply.next_map <= first:
            raise ProtocolMismatch(f"the pages of shuffle {spec.id} do not advance: map {reply.next_map} after {first}")
        first, more = reply.next_map, reply.more
    if not wanted:
        connection.control.call(
            "Locate", pb.LocateRequest(shuffle=messages.key_of(spec.id), page=1)
        )  # does the shuffle exist?
    epoch, version = versions.pop() if len(versions) == 1 else (0, 0)
    located = Located(tuple(outputs), tuple(lost), epoch, version)
    if version:
        connection.located.keep(spec.id, wanted, located)
    return located


def locate_all(connection: Connection, spec: ShuffleSpec, maps: range) -> Sequence[MapOutput]:
    """The outputs of exactly `maps`. Raises MapOutputLost or MapOutputNotWritten naming the maps that are missing."""
    located = locate(connection, spec, maps)
    if located.lost:
        raise lost_error(spec, located.lost)
    missing = set(maps) - {o.output.map for o in located.outputs}
    if missing:
        raise MapOutputNotWritten(f"maps {name_numbers(missing)} have not committed", shuffle=spec.id)
    return located.outputs


def lost_error(spec: ShuffleSpec, lost: Sequence[MapOutput]) -> MapOutputLost:
    """What a reader gets of these outputs, which were committed and lost; at least one."""
    return MapOutputLost(
        f"maps {name_numbers(o.output.map for o in lost)} were committed and have been lost",
        remedy="run these maps again as new attempts",
        worker=lost[0].worker,
        shuffle=spec.id,
        output=lost[0].output,
    )
