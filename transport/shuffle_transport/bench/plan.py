"""How much is measured: the full plan, and a quick one that shows in seconds that everything works."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in payload bytes, times in seconds."""

    rounds: int = 10  # pairs; each contender is behind each other one equally often
    volume: int = 1024 * MIB  # each way in a timed run: less takes a tenth of a second, and is noise
    most_blocks: int = 131_072  # in a timed run, so that runs of small blocks stay short
    most_messages: int = 8_192  # likewise, of small messages
    sizes: tuple[int, ...] = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB)
    message: int = 4 * MIB  # smaller blocks are joined up to this
    single_sizes: tuple[int, ...] = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)
    channels: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    channel_message: int = 256 * KIB
    isolated: int = 64  # channels, one of which stands still
    isolated_s: float = 2.0
    isolated_budget: int = 128 * MIB
    warm_s: float = 0.5
    trips: int = 3000  # round trips a round
    trip_bytes: int = KIB
    rates: tuple[int, ...] = (1_000, 10_000, 50_000, 100_000)  # blocks per second
    rate_block: int = KIB
    rate_s: float = 2.0
    budgets: tuple[int, ...] = (32 * MIB, 128 * MIB)
    slow_channels: int = 16
    slow_s: float = 1.5


QUICK = Plan(
    rounds=2,
    volume=4 * MIB,
    sizes=(4 * KIB, 64 * KIB, MIB),
    message=MIB,
    single_sizes=(64 * KIB,),
    channels=(1, 4),
    isolated=8,
    isolated_s=0.2,
    warm_s=0.05,
    trips=50,
    rates=(1_000, 50_000),
    rate_s=0.1,
    budgets=(32 * MIB,),
    slow_s=0.2,
)
