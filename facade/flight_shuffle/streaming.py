"""`shuffle_api.streaming`, under the name of the distribution."""

from shuffle_api.streaming import *  # noqa: F403
from shuffle_api.streaming import __all__ as __all__
