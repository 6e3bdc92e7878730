"""`shuffle_api.errors`, under the name of the distribution."""

from shuffle_api.errors import *  # noqa: F403
from shuffle_api.errors import __all__ as __all__
