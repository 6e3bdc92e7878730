"""Commits by workers that are other processes: many in one request, one wait for the disk for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from shuffle_api.errors import AttemptSuperseded, InvalidArgument, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.operations import CommitMapOutput
from shuffle_api.values import MapOutput
from shuffle_server.master.master import Master
from shuffle_server.master.refusal import guard
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_transport import messages

MAX_COMMITS = 10_000


class CommitService(rpc.ShuffleRegistryServicer):
    """`flight_shuffle.registry.v1.ShuffleRegistry`."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def Commit(self, request: pb.CommitRequest, context: grpc.ServicerContext) -> pb.CommitReply:
        return guard(context, lambda: self._commit(request))

    def _commit(self, request: pb.CommitRequest) -> pb.CommitReply:
        check_epoch(request.epoch, self._master.epoch)
        if len(request.commits) > MAX_COMMITS:
            raise InvalidArgument(
                f"{len(request.commits)} commits in one request", remedy=f"send at most {MAX_COMMITS} at a time"
            )
        commits = [
            CommitMapOutput(messages.shuffle_id(each.shuffle), messages.map_output(each.output))
            for each in request.commits
        ]
        return pb.CommitReply(results=map(_result, commit_all(self._master, commits)))


def commit_all(master: Master, commits: Sequence[CommitMapOutput]) -> list[MapOutput | ShuffleError | None]:
    """What became of each commit, once all of them are durable: None when it stands, the output of the attempt that had
    won its map before, or why it is refused."""
    outcomes = master.apply_all(commits)
    return [
        _winner(master, commit.shuffle, outcome) if isinstance(outcome, ShuffleError) else None
        for commit, outcome in zip(commits, outcomes, strict=True)
    ]


def check_epoch(named: int, epoch: int) -> None:
    """:raises InvalidArgument: the request was meant for another life of the master; 0 is for any."""
    if named not in (0, epoch):
        raise InvalidArgument(
            f"the request is for epoch {named} of the master, this is epoch {epoch}",
            remedy="greet the master again, tell it what you hold, then repeat the request with its epoch",
        )


def _winner(master: Master, shuffle: ShuffleId, error: ShuffleError) -> MapOutput | ShuffleError:
    if not isinstance(error, AttemptSuperseded) or error.output is None:
        return error
    try:
        with master.lock:
            return master.registry.map_output(shuffle, error.output.map)
    except ShuffleError:  # lost since then, or all of it is gone
        return error


def _result(outcome: MapOutput | ShuffleError | None) -> pb.CommitResult:
    if outcome is None:
        return pb.CommitResult()
    if isinstance(outcome, ShuffleError):
        return pb.CommitResult(error=messages.error_message(outcome))
    return pb.CommitResult(winner=messages.output_message(outcome))
