"""Dataclasses with slots as compact JSON.

`dataclasses.asdict` copies every value deeply, which takes longer than to write down the small ones that are kept here.
"""

from __future__ import annotations

import json
from typing import Any


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass with slots by name; dataclasses in them as they are."""
    return {name: getattr(value, name) for name in value.__slots__}


COMPACT_JSON = json.JSONEncoder(separators=(",", ":"), default=fields_of)
