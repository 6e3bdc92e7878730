"""How a store keeps map outputs: what its users choose."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_server.store.calls import DISK_SECONDS
from shuffle_server.store.compaction_model import NO_COMPACTION, CompactionOptions
from shuffle_server.store.quota import MOST_ATTEMPTS


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store keeps map outputs.

    :param sync: what is published survives the machine.
    :param recycle: bytes of removed outputs whose files are kept for the next ones, in all directories together.
    :param floor: the part of each file system, 0 to 1, that stays free.
    :param app_max_bytes, app_max_attempts: see `AppQuota`.
    :param disk_timeout: seconds after which a directory whose calls do not return is taken out.
    """

    sync: bool = False
    recycle: int = 0
    floor: float = 0.0
    app_max_bytes: int = 0
    app_max_attempts: int = MOST_ATTEMPTS
    compaction: CompactionOptions = NO_COMPACTION
    disk_timeout: float = DISK_SECONDS


DEFAULTS = StoreOptions()
