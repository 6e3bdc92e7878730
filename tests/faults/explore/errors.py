"""What an engine may do about each error: the documented remedies, as sets of classes."""

from __future__ import annotations

from shuffle_api import errors

AWAY = (
    errors.ServerUnreachable,
    errors.DeadlineExceeded,
    errors.StreamBroken,
    errors.ShuttingDown,
    errors.Overloaded,
    errors.AttemptSuperseded,
)
"""Nobody answered, or not to the end: whether it took effect is not known. The same again."""

REFUSED = (
    errors.StorageFull,
    errors.StorageFailed,
    errors.QuotaExceeded,
    errors.CommitMismatch,
)
"""What was asked for did not happen and will not. Another attempt."""

LOST = (errors.MapOutputLost, errors.MapOutputNotWritten, errors.BlockCorrupt)
"""What was there is gone, or not there yet. The map is run again."""

GONE = (errors.AppExpired, errors.UnknownApp, errors.UnknownShuffle)
"""The run is over for the service. A new run."""
