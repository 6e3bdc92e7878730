"""Messages as JSON, for what commands print with `--json`."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """A message without maps and bytes as JSON values, every field of it.

    Numbers are numbers: protobuf's own JSON makes texts of those of 64 bits.
    """
    return {
        field.name: [_value(each) for each in getattr(message, field.name)]
        if field.is_repeated
        else _value(getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
    }


def _value(value: Any) -> Any:
    return plain(value) if isinstance(value, Message) else value
