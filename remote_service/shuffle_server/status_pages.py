"""The state of a server out of the pages of `Status`, for commands and for the page."""

from __future__ import annotations

from collections.abc import Callable

from shuffle_transport.proto import flight_shuffle_pb2 as pb

PAGE = 10_000  # runs and shuffles that are asked for at a time
ONCE = ("workers", "states", "lost", "registries")
"""Lists that each page has whole: those of the first are kept. The scalars are those of the last page."""


def all_pages(ask: Callable[[pb.StatusRequest], pb.StatusReply], app: str = "") -> pb.StatusReply:
    """All pages, of one application or of all, as one reply. Raises what `ask` raises."""
    reply = ask(pb.StatusRequest(app=app, limit=PAGE))
    while reply.next:
        page = ask(pb.StatusRequest(app=app, first=reply.next, limit=PAGE))
        for field in ONCE:
            page.ClearField(field)
        reply.MergeFrom(page)
        reply.next = page.next
    return reply


def state_of(worker: pb.Worker) -> str:
    """What a worker does, in a word or two."""
    if worker.silent:
        return "silent"
    return "draining" if worker.draining else "in use"
