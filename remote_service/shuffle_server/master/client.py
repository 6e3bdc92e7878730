"""The registry for a worker in another process: commits from many threads, gathered into few requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from shuffle_api.errors import ProtocolMismatch, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.operations import CommitMapOutput
from shuffle_api.values import MapOutput
from shuffle_server.master.commit_stream import CommitStream
from shuffle_server.master.grouping import Batcher
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.security import NO_CREDENTIALS, Credentials

MOST_COMMITS = 1000  # in one request: its reply comes soon, and it stays far below any message limit

LINGER_SECONDS = 0.002
"""A request costs what dozens of commits in it cost, so the first of the tasks that have just been answered waits for
the others: 7,200 to 8,300 commits/s instead of 5,100 to 5,400 (bench.registry, 16 clients with 8 tasks each)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commits: an incarnation of a worker, which has joined an epoch of the master. By default: anybody."""

    epoch: int = 0
    worker: str = ""
    incarnation: int = 0

    def message(self) -> pb.Identity:
        return pb.Identity(epoch=self.epoch, worker=self.worker, incarnation=self.incarnation)


ANYBODY = Identity()


class RegistryClient:
    """Commits at the master at `address` (HOST:PORT). Thread-safe; close it at the end.

    While a request is under way the commits that come are gathered, and go out together with the next one: so a worker
    with many tasks needs no more requests than one with few.

    :param timeout: seconds for the answer to one request; a commit waits for two of them at most.
    :param retry: seconds for which a request waits for a master that is away.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 30.0,
        retry: float = 0.0,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self._client = ControlClient(
            address,
            client="flight-shuffle-worker",
            timeout=timeout,
            retry=retry,
            credentials=credentials,
            stub=rpc.ShuffleRegistryStub,
        )
        self._stream = CommitStream(self._client, timeout)
        self._batcher: Batcher[tuple[Identity, CommitMapOutput], MapOutput | ShuffleError] = Batcher(
            self._send, timeout=2 * (timeout + retry), what="the commit at the master", linger=LINGER_SECONDS
        )

    def commit(self, shuffle: ShuffleId, output: MapOutput, identity: Identity = ANYBODY) -> MapOutput:
        """Record a commit, durably; the output that won the map, this one or one that was there before.

        A commit may be repeated when it is not known whether it has reached the master.

        :param identity: who commits.
        :raises MapOutputLost: this very attempt was lost before.
        :raises StaleEpoch: the identity is unknown to the master, or out of date.
        :raises ShuffleError: what else `Registry.apply` raises; ServerUnreachable, DeadlineExceeded.
        """
        outcome = self._batcher.wait(self._batcher.add((identity, CommitMapOutput(shuffle, output))))
        if isinstance(outcome, ShuffleError):
            raise outcome
        return outcome

    def commit_all(
        self, shuffle: ShuffleId, outputs: Sequence[MapOutput], identity: Identity = ANYBODY
    ) -> list[MapOutput | ShuffleError]:
        """Record many commits, as a worker does that tells what it holds; what `commit` gives or raises for each.

        :raises ServerUnreachable, DeadlineExceeded: some of them may have been recorded; they may be repeated.
        """
        tickets = [self._batcher.add((identity, CommitMapOutput(shuffle, output))) for output in outputs]
        return [self._batcher.wait(ticket) for ticket in tickets]

    def close(self) -> None:
        """Close the connection; idempotent. Callers that wait for a commit get ShuttingDown."""
        self._stream.close()
        self._client.close()

    def _send(self, asked: list[tuple[Identity, CommitMapOutput]]) -> list[MapOutput | ShuffleError]:
        outcomes: list[MapOutput | ShuffleError] = []
        for identity, each in groupby(asked, lambda one: one[0]):
            commits = [commit for _, commit in each]
            for first in range(0, len(commits), MOST_COMMITS):
                outcomes += self._request(identity, commits[first : first + MOST_COMMITS])
        return outcomes

    def _request(self, identity: Identity, commits: list[CommitMapOutput]) -> list[MapOutput | ShuffleError]:
        request = pb.CommitRequest(identity=identity.message(), commits=map(_message, commits))
        reply = self._stream.ask(request)
        if len(reply.results) != len(commits):
            raise ProtocolMismatch(
                f"{self._client.address} answered {len(commits)} commits with {len(reply.results)} results",
                remedy="install the same flight-shuffle release on both sides",
            )
        return [_outcome(commit, result) for commit, result in zip(commits, reply.results, strict=True)]


def _message(commit: CommitMapOutput) -> pb.Commit:
    return pb.Commit(
        shuffle=messages.key_of(commit.shuffle),
        output=messages.output_message(commit.output),
    )


def _outcome(commit: CommitMapOutput, result: pb.CommitResult) -> MapOutput | ShuffleError:
    if result.HasField("error"):
        return messages.typed_error(result.error)
    return messages.map_output(result.winner) if result.HasField("winner") else commit.output
