"""What the peer is asked to do with one stream; travels as JSON in the stream's first bytes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, Self

Work = Literal["sink", "source", "both", "echo", "arrivals", "slow", "stall"]
"""What the peer does: take messages in and drop them; send `count`; both at once; send each back; note when each
block was meant to be sent and when it came; take a message in each `Counters.PAUSE_S`; take one in and then stand still
until it is released."""

Data = Literal["noise", "rows"]
"""Random bytes, or rows of numbers and words, which compress to about half."""


@dataclass(frozen=True, slots=True)
class Job:
    """One stream's work. `count` is messages (0: until the sender ends), `message` and `block` are payload bytes of
    a message and of a block in it; `channel` numbers streams that run at once; with `check` the receiver checks and
    decompresses every block of a sink. With `arrivals`, `rate` is the blocks per second that are offered."""

    work: Work
    message: int
    block: int
    count: int = 0
    channel: int = 0
    codec: str = "none"
    data: Data = "noise"
    check: bool = False
    rate: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.block <= self.message or self.message % self.block:
            raise ValueError(f"messages of {self.message} bytes hold no whole number of blocks of {self.block}")

    @property
    def volume(self) -> int:
        """Payload bytes one way."""
        return self.count * self.message

    @property
    def blocks(self) -> int:
        return self.count * (self.message // self.block)

    def dump(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Self:
        return cls(**json.loads(data))
