"""What workers that are other processes say: they join, send heartbeats, commit, and lose what they held."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from shuffle_api.errors import AttemptSuperseded, InvalidArgument, ShuffleError, StaleEpoch
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.operations import CommitMapOutput, LoseMapOutput
from shuffle_api.values import MapOutput, WorkerInfo, parse_labels
from shuffle_server.journals import Journal
from shuffle_server.master.auth import check
from shuffle_server.master.committing import Asked
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.master.registries import ALONE, Registries
from shuffle_server.master.summary import held_page, unregistered
from shuffle_server.master.worker_checks import check_held_elsewhere, check_present
from shuffle_server.proto import registry_pb2 as pb
from shuffle_transport import messages

log = logging.getLogger(__name__)

MAX_COMMITS = 10_000
PAGE = 5_000  # outputs in one reply of Held
WORKER_PROTOCOL = 2  # the oldest version that a worker may speak
RELEASED = "it was moved to another worker"


class CommitService:
    """`flight_shuffle.registry.v1.ShuffleRegistry`. Every method returns its reply or raises a ShuffleError."""

    def __init__(
        self,
        master: Master,
        membership: Membership,
        sure: Callable[[], None] = lambda: None,
        registries: Registries = ALONE,
    ) -> None:
        self._master, self._membership, self._sure, self._registries = master, membership, sure, registries
        self._other = Journal()  # the last one of a worker that was not joined

    def Join(self, request: pb.JoinRequest) -> pb.JoinReply:
        worker = request.worker
        # Workers of version 1 write files without a generation.
        messages.negotiate(request.protocol, max(request.oldest, WORKER_PROTOCOL), f"worker {worker.id}")
        self._registries.check_join(request.registry)
        journal = self._master.journal()
        if not journal.follows(held := Journal(request.journal, request.epoch)):
            self._refuse(worker.id, held, journal)
            return pb.JoinReply(epoch=journal.epoch, journal=journal.id)
        labels = parse_labels(",".join(worker.labels))
        info = WorkerInfo(worker.id, worker.host, worker.port, worker.free_bytes, request.incarnation, labels)
        return pb.JoinReply(
            known=self._membership.join(info, draining=worker.draining),
            epoch=self._master.epoch,
            beat_seconds=self._membership.beat_seconds,
            registries=self._registries.masters,
            journal=journal.id,
        )

    def _refuse(self, worker: str, held: Journal, own: Journal) -> None:
        """Log a worker that is not joined; of those of one journal, which come again and again, the first."""
        if held != self._other:
            self._other = held
            log.error(
                "worker %s is not joined: its map outputs are of %s, and this master has %s; to do: start this master"
                " with the --data-dir or --metadata of that journal (docs/registry.md)",
                worker,
                held,
                own,
            )

    def Beat(self, request: pb.BeatRequest) -> pb.BeatReply:
        who = request.identity
        check_epoch(who.epoch, self._master.epoch)
        if len(request.shuffles) > MAX_COMMITS:
            raise InvalidArgument(
                f"{len(request.shuffles)} shuffles in one heartbeat", remedy=f"name at most {MAX_COMMITS} at a time"
            )
        status = request.status if request.HasField("status") else None
        beat = self._membership.heartbeat(who.worker, who.incarnation, request.free_bytes, status)
        gone = [*beat.gone, *unregistered(self._master, map(messages.shuffle_id, request.shuffles))]
        self._master.settle()  # a shuffle reported as gone stays gone
        return pb.BeatReply(
            gone=map(messages.key_of, dict.fromkeys(gone)), draining=beat.draining, beat_seconds=beat.seconds
        )

    def alive(self, request: pb.BeatRequest) -> None:
        """A heartbeat that is refused, because its token is over."""
        self._membership.alive(request.identity.worker, request.identity.incarnation)

    def Release(self, request: pb.ReleaseRequest) -> pb.ReleaseReply:
        who = request.identity
        check_epoch(who.epoch, self._master.epoch)
        with self._master.lock:
            check_present(self._master, who.worker, who.incarnation)
        operations = [
            LoseMapOutput(messages.shuffle_id(o.shuffle), messages.map_attempt(o.output), RELEASED, who.worker)
            for o in request.outputs
        ]
        sure = self._membership.seen_recently(self._holders(operations)) - {who.worker}
        outcomes = self._master.apply_all(operations, partial(check_held_elsewhere, sure))
        pairs = zip(request.outputs, outcomes, strict=True)
        return pb.ReleaseReply(released=(o for o, outcome in pairs if not isinstance(outcome, ShuffleError)))

    def _holders(self, losses: Sequence[LoseMapOutput]) -> set[str]:
        """The workers that hold some of these outputs."""
        found: set[str] = set()
        for loss in losses:
            with self._master.lock, suppress(ShuffleError):  # each is refused for itself
                found.update(self._master.registry.map_output(loss.shuffle, loss.output.map).workers)
        return found

    def Drain(self, request: pb.DrainRequest) -> pb.DrainReply:
        if self._membership.has_left(request.worker):
            return pb.DrainReply(left=True)
        self._membership.drain(request.worker)
        status = self._membership.record(request.worker).status
        with self._master.lock:
            only, size = self._master.registry.only_at(request.worker)
        others = self._membership.taking()
        return pb.DrainReply(
            outputs=only,
            bytes=size,
            staged=status.staged_outputs,
            pushes=status.open_pushes,
            others=others,
        )

    def Leave(self, request: pb.LeaveRequest) -> pb.LeaveReply:
        who = request.identity
        check_epoch(who.epoch, self._master.epoch)
        self._membership.leave_empty(who.worker, who.incarnation)
        return pb.LeaveReply()

    def Held(self, request: pb.HeldRequest) -> pb.HeldReply:
        page = held_page(self._master, request.worker, request.first, PAGE + 1)
        return pb.HeldReply(
            outputs=(
                pb.HeldOutput(shuffle=messages.key_of(id), output=messages.attempt_of(output.output))
                for id, output in page[:PAGE]
            ),
            more=len(page) > PAGE,
        )

    def Lose(self, request: pb.LoseRequest) -> pb.LoseReply:
        who = request.identity
        check_epoch(who.epoch, self._master.epoch)
        with self._master.lock:
            check_present(self._master, who.worker, who.incarnation)
        for lost in request.outputs:
            shuffle, output = messages.shuffle_id(lost.shuffle), messages.map_attempt(lost.output)
            self._master.lose(shuffle, output, lost.reason, who.worker)
        return pb.LoseReply()

    def commits(self, asked: Sequence[Asked]) -> list[bytes | ShuffleError]:
        """The replies to requests of `Commits`, in their order; all are decided with one wait for the log."""
        self._sure()
        parsed = [self._parsed(each) for each in asked]
        try:
            outcomes = iter(commit_all(self._master, [each for commits in parsed for each in _commits(commits)]))
        except InvalidArgument:  # nothing has happened; it is the answer to one of them
            if len(asked) > 1:
                return [answer for each in asked for answer in self.commits([each])]
            raise
        return [
            commits if isinstance(commits, ShuffleError) else _reply([next(outcomes) for _ in commits])
            for commits in parsed
        ]

    def _parsed(self, asked: Asked) -> list[CommitMapOutput] | ShuffleError:
        """What one request asks for, or why it is refused."""
        try:
            request = messages.parse(pb.CommitRequest, asked.data)
            check("Commits", request, asked.principal)
            who = request.identity
            check_epoch(who.epoch, self._master.epoch)
            if len(request.commits) > MAX_COMMITS:
                raise InvalidArgument(
                    f"{len(request.commits)} commits in one request", remedy=f"send at most {MAX_COMMITS} at a time"
                )
            if who.worker:
                with self._master.lock:
                    check_present(self._master, who.worker, who.incarnation)
            return [
                CommitMapOutput(messages.shuffle_id(each.shuffle), messages.map_output(each.output))
                for each in request.commits
            ]
        except ShuffleError as error:
            return error


def _commits(parsed: list[CommitMapOutput] | ShuffleError) -> Sequence[CommitMapOutput]:
    return () if isinstance(parsed, ShuffleError) else parsed


def _reply(outcomes: Iterable[MapOutput | ShuffleError | None]) -> bytes:
    return pb.CommitReply(results=map(_result, outcomes)).SerializeToString()


def commit_all(master: Master, commits: Sequence[CommitMapOutput]) -> list[MapOutput | ShuffleError | None]:
    """What became of each commit, once all of them are durable: None when it stands, the output of the attempt that had
    won its map before, or why it is refused."""
    outcomes = master.apply_all(commits)
    return [
        _winner(master, commit.shuffle, outcome) if isinstance(outcome, ShuffleError) else None
        for commit, outcome in zip(commits, outcomes, strict=True)
    ]


def check_epoch(named: int, epoch: int) -> None:
    """:raises StaleEpoch: the request was meant for another life of the master; 0 is for any."""
    if named not in (0, epoch):
        raise StaleEpoch(f"the request is for epoch {named} of the master, this is epoch {epoch}")


def _winner(master: Master, shuffle: ShuffleId, error: ShuffleError) -> MapOutput | ShuffleError:
    if not isinstance(error, AttemptSuperseded) or error.output is None:
        return error
    try:
        with master.lock:
            return master.registry.map_output(shuffle, error.output.map)
    except ShuffleError:  # the output is lost, or the shuffle or application is gone
        return error


def _result(outcome: MapOutput | ShuffleError | None) -> pb.CommitResult:
    if outcome is None:
        return pb.CommitResult()
    if isinstance(outcome, ShuffleError):
        return pb.CommitResult(error=messages.error_message(outcome))
    return pb.CommitResult(winner=messages.output_message(outcome))
