"""`shuffle_api.columnar`, under the name of the distribution; with rows of one size as numpy arrays."""

from shuffle_api import columnar as _columnar
from shuffle_api.columnar import *  # noqa: F403
from shuffle_api.columnar.rows import frame_rows, rows_of

__all__ = [*_columnar.__all__, "frame_rows", "rows_of"]
