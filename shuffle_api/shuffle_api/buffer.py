"""The type of bytes-like arguments: anything with the buffer protocol, a pyarrow.Buffer or a numpy array too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
elif TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer: TypeAlias = bytes | bytearray | memoryview

__all__ = ["Buffer"]
