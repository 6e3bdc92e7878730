"""`shuffle_api.columnar`, under the name of the distribution."""

from shuffle_api.columnar import *  # noqa: F403
from shuffle_api.columnar import __all__ as __all__
