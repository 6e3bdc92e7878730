"""Every metric family of a server: name, kind, labels, help, who has it. docs/operations.md is written from this list.

Names follow Prometheus: base units in the name, counters end in `_total`. No label names an application, a shuffle or a
peer: those come and go without bound, and each would leave a series behind. `flight-shuffle status` shows them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from shuffle_api.errors import ErrorCode
from shuffle_server.connection_guard import REASONS
from shuffle_server.store.compaction_model import DECISIONS
from shuffle_server.token_counts import ANSWERS, CHECKS

Kind = Literal["counter", "gauge", "histogram", "info"]
Part = Literal["master", "worker"]
Parts = tuple[Part, ...]
MASTER: Parts = ("master",)
WORKER: Parts = ("worker",)
BOTH: Parts = ("master", "worker")

PREFIX = "flight_shuffle_"

# 100 us to 100 s: a commit of a small output takes less than a millisecond, a push that waits for memory a minute.
SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
    30.0,
    100.0,
)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `name` is the one exposed, but for what the exposition adds to histograms; a process has it
    when it runs one of the `parts`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()  # per label the values there can be; empty when they are not known before
    parts: Parts = WORKER

    def combinations(self) -> list[tuple[str, ...]]:
        """Every combination of label values: each is exposed from the start, so that a rate sees its first increase."""
        return list(itertools.product(*self.values)) if self.labels else []


def _counter(name: str, help: str, parts: Parts = WORKER, /, **labels: tuple[str, ...]) -> Family:
    return Family(f"{PREFIX}{name}_total", "counter", help, tuple(labels), tuple(labels.values()), parts)


def _gauge(name: str, help: str, parts: Parts = WORKER, /, **labels: tuple[str, ...]) -> Family:
    return Family(f"{PREFIX}{name}", "gauge", help, tuple(labels), tuple(labels.values()), parts)


def _histogram(name: str, help: str, parts: Parts = WORKER, /, **labels: tuple[str, ...]) -> Family:
    return Family(f"{PREFIX}{name}", "histogram", help, tuple(labels), tuple(labels.values()), parts)


CODES = tuple(code.name for code in ErrorCode)
COMMIT_OUTCOMES = ("won", "repeated", "superseded")
PUSH_OUTCOMES = ("completed", "refused", "broken")
ENDPOINTS = ("data", "control")
DIRECTIONS = ("push", "pull")
STORED_STATES = ("committed", "staged", "spare")
OUTPUT_STATES = ("committed", "lost")
CONTROL_LANES = ("message", "life", "join", "changes", "queries", "commits")
STREAM_KINDS = ("watches", "commits")
REMOVALS = ("unregistered", "expired")

BUILD = Family(f"{PREFIX}build_info", "info", "Versions of this server.", ("version", "python", "pyarrow"), parts=BOTH)
READY = _gauge("ready", "1 when the server accepts work, 0 when /ready says why not.", BOTH)

TASK_FAILING = _gauge(
    "task_failing_seconds",
    "How long a periodic task has failed unexpectedly; 0 while it works.",
    BOTH,
    task=(),
)
TASK_FAILURES = _counter("task_failures", "Rounds of a periodic task that failed unexpectedly.", BOTH, task=())

PUSHED_BYTES = _counter("pushed_bytes", "Payload received and kept, as it was sent (compressed).")
PUSHED_BLOCKS = _counter("pushed_blocks", "Blocks received and kept.")
PUSHED_MESSAGES = _counter("pushed_messages", "Messages with blocks received.")
DISCARDED_BYTES = _counter("discarded_bytes", "Payload received and dropped: sent twice, or its map had committed.")
PULLED_BYTES = _counter("pulled_bytes", "Payload served.")
PULLED_BLOCKS = _counter("pulled_blocks", "Blocks served.")
PULLED_MESSAGES = _counter("pulled_messages", "Messages with blocks served.")
HANDED_OVER_BYTES = _counter(
    "handed_over_bytes",
    "Payload that clients on this host wrote to or read from files; part of that pushed and pulled.",
    direction=DIRECTIONS,
)
STREAMS = _gauge("streams", "Open streams.", direction=DIRECTIONS)
PUSH_SECONDS = _histogram("push_seconds", "A push stream, from its opening to its last reply.", outcome=PUSH_OUTCOMES)
PULL_FIRST_BYTE = _histogram("pull_first_byte_seconds", "A pull, from its ticket to its first message.")
COMMITS = _counter(
    "commits",
    "Commits: the attempt won its map, had won before (repeated), or another had won (superseded).",
    outcome=COMMIT_OUTCOMES,
)
COMMIT_SECONDS = _histogram("commit_seconds", "A commit: index written, output published, journal durable.")
CREDIT_STALLS = _counter("credit_stalls", "Messages that waited for more credit at their sender.")
CREDIT_STALL_SECONDS = _counter(
    "credit_stall_seconds", "Time from the message before such a one to the grant, at this end, summed."
)
MONITORING_CUT = _counter(
    "monitoring_cut",
    "Connections to the HTTP endpoint closed before their answer.",
    BOTH,
)
REFUSALS = _counter("refusals", "Requests, streams and map outputs refused.", BOTH, endpoint=ENDPOINTS, code=CODES)
CONTROL_SECONDS = _histogram("control_seconds", "A control call, from request to reply.", MASTER, method=())
CONTROL_CALLS = _gauge(
    "control_calls",
    "Calls to the control endpoint: waiting for their message, and under way or in line in each lane.",
    MASTER,
    lane=CONTROL_LANES,
)
CONTROL_STREAMS = _gauge("control_streams", "Open streams at the control endpoint.", MASTER, kind=STREAM_KINDS)

POOL_BUDGET = _gauge("pool_budget_bytes", "Memory budget for data in flight (--memory).")
POOL_USED = _gauge("pool_used_bytes", "Reserved memory.")
POOL_PEAK = _gauge("pool_peak_bytes", "Most memory that was ever reserved.")
POOL_PRESSED = _gauge("pool_pressed", "1 while memory is short: credit windows do not grow.")
POOL_WAITING = _gauge("pool_waiting_streams", "Push streams that wait for memory.")
POOL_WAITING_BYTES = _gauge("pool_waiting_bytes", "Memory that they wait for.")
POOL_OLDEST_WAIT = _gauge("pool_oldest_wait_seconds", "Wait of the first of them.")
POOL_WAIT_SECONDS = _counter("pool_wait_seconds", "Ended waits for memory, summed.")
POOL_REFUSALS = _counter("pool_refusals", "Waits for memory that ended at --overload-timeout.")
POOL_APPS = _gauge("pool_applications", "Applications with reserved memory.")
POOL_LARGEST_SHARE = _gauge("pool_largest_share_bytes", "Largest share of one application.")
POOL_LENT = _gauge(
    "pool_lent_bytes",
    "Reserved for senders that send nothing and lent to others; not part of the used memory.",
)
POOL_OUTGOING = _gauge("pool_outgoing_bytes", "Reserved memory with blocks read from disk for pulls.")
PULLS_CUT = _counter("pulls_cut", "Pulls cut: their reader took nothing for 30 s while others waited for memory.")

APPS = _gauge("apps", "Applications registered.", MASTER)
APPS_REMOVED = _counter(
    "apps_removed", "Applications that ended, or expired without heartbeats.", MASTER, reason=REMOVALS
)
SHUFFLES = _gauge("shuffles", "Shuffles registered.", MASTER)
MOST_SHUFFLES = _gauge("app_shuffles_most", "Most shuffles of one application (bound: --app-max-shuffles).", MASTER)
WORKERS = _gauge("workers", "Workers registered.", MASTER)
MAP_OUTPUTS = _gauge(
    "map_outputs", "Maps with a committed output, and maps with a lost one.", MASTER, state=OUTPUT_STATES
)
OUTPUTS_LOST = _counter("map_outputs_lost", "Committed map outputs lost: deleted, corrupt, unreadable.", MASTER)
WORKERS_LOST = _counter("workers_lost", "Workers lost for want of heartbeats.", MASTER)
MAP_OUTPUT_BYTES = _gauge("map_output_bytes", "Payload of committed map outputs, at all workers.", MASTER)
LEADER = _gauge(
    "leader",
    "1 while this master leads; 0 while it starts, stands by, or cannot renew its lease.",
    MASTER,
)
EPOCH = _gauge("epoch", "Number of this start of the master; a rise is a restart.", MASTER)
JOURNAL_BYTES = _gauge("journal_bytes", "The registry's files: journal and snapshots.", MASTER)

STORED_BYTES = _gauge(
    "stored_bytes",
    "Payload of committed map outputs and of attempts being written (staged); reusable files (spare).",
    state=STORED_STATES,
)
MERGED_BYTES = _gauge("merged_bytes", "Size of compacted files, in which map outputs are ordered by partition.")
REWRITTEN_BYTES = _counter(
    "rewritten_bytes",
    "Payload that compaction has read and written again.",
)
COMPACTION = _counter(
    "compaction_outputs",
    "Map outputs with blocks small for the disk: compacted, left alone (large_blocks lie together in them), or failed.",
    decision=DECISIONS,
)
COMPACTION_PENDING = _gauge(
    "compaction_pending_bytes",
    "Payload with blocks small for the disk that waits for more outputs, or to exceed the page cache.",
)
DISK_BOUND = _gauge(
    "disk_bound", "1 while the page cache is too small for this worker's outputs: reads go to the disks."
)
STAGED_OUTPUTS = _gauge("staged_outputs", "Attempts being written.")
LARGEST_STAGED = _gauge("largest_staged_outputs", "Most of them of one application (--app-max-attempts).")
INDEX_CACHE = _gauge("index_cache_bytes", "Cached indexes of committed map outputs.")
DISK_SIZE = _gauge("data_dir_size_bytes", "Size of a data directory's file system; 0 when it does not answer.", path=())
DISK_USED = _gauge("data_dir_used_bytes", "Used part of a data directory's file system.", path=())
DISK_SEEK = _gauge(
    "data_dir_seek_bytes",
    "Bytes that the disk reads in the time of a seek (--device): smaller blocks are compacted. 0: never.",
    path=(),
)
DISK_OUT = _gauge("data_dir_out", "1 while a data directory fails and takes nothing new.", path=())
DISK_FREE = _gauge("data_dir_free_bytes", "Part of it that this server may use.", path=())

JOINED = _gauge("registry_joined", "1 while the master of a registry counts on this worker.", registry=())

RELAYED_SHUFFLES = _gauge("relayed_shuffles", "Streaming shuffles through this worker's memory.")
RELAY_STREAMS = _gauge(
    "relay_streams", "Their writers that are not read to the end, and their readers.", direction=DIRECTIONS
)
RELAY_QUEUED_BLOCKS = _gauge("relay_queued_blocks", "Queued blocks, which no reader has taken yet.")
RELAY_QUEUED_BYTES = _gauge("relay_queued_bytes", "Payload of those blocks.")
RELAY_TASKS = _gauge("relay_tasks", "Tasks reached through this worker.")
RELAYED_CHANNELS = _gauge("relayed_channels", "Channels between tasks through this worker.")
RELAYED_CHANNEL_HELD = _gauge("relayed_channel_held_bytes", "Bytes of their messages in this worker's memory.")
RELAYED_CHANNEL_MESSAGES = _counter("relayed_channel_messages", "Their messages passed on.")
RELAYED_CHANNEL_BYTES = _counter("relayed_channel_bytes", "Bytes of those messages.")

CONNECTION_STATES = ("known", "stranger")
CONNECTIONS = _gauge(
    "data_connections",
    "Connections to the data endpoint: with an admitted call (known) or without (stranger).",
    state=CONNECTION_STATES,
)
CONTROL_CONNECTIONS = _gauge(
    "control_connections",
    "Connections to the control endpoint: with an admitted call (known) or without (stranger).",
    MASTER,
    state=CONNECTION_STATES,
)
CALLS = _gauge("data_calls", "Calls to the data endpoint under way with an application's token.")
MOST_CALLS = _gauge("app_data_calls_most", "Most of them of one application (--app-max-calls).")
CONNECTIONS_UNREAD = _gauge("data_unread_bytes", "Estimated bytes on data connections that no request has taken up.")
CONNECTIONS_CUT = _counter(
    "data_connections_cut",
    "Connections cut: no valid token, too many unread bytes (--peer-max-unread), too many of one host"
    " (--peer-max-connections), no answer (--peer-timeout).",
    reason=REASONS,
)
CONTROL_CONNECTIONS_CUT = _counter(
    "control_connections_cut",
    "Connections to the control endpoint cut, for the reasons of the data endpoint.",
    MASTER,
    reason=REASONS,
)
TOKEN_CHECKS = _counter(
    "token_checks",
    "Calls whose token was admitted, missing (or several), expired, revoked, wrong, or unanswered by the master.",
    BOTH,
    outcome=CHECKS,
)
TOKEN_QUESTIONS = _counter(
    "token_questions", "Questions of a worker without the secret to its master, by answer.", outcome=ANSWERS
)
TOKENS_KNOWN = _gauge("tokens_known", "Tokens that such a worker admits without asking again.")
BODIES_REFUSED = _counter("compressed_bodies_refused", "Batches refused because Arrow compressed their body.")
EXPANSION_BOUNDED = _gauge("expansion_bounded", "1 if Arrow refuses a large body before it is expanded, else 0.")

ALL: tuple[Family, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Family))
