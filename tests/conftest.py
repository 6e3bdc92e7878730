"""How hypothesis runs here: no verdict depends on how busy the machine is, nor, in CI, on which examples are drawn.

Elsewhere than in CI the examples are others each time, so that new ones are found.
"""

import os

from hypothesis import HealthCheck, settings

IN_CI = bool(os.environ.get("CI"))

settings.register_profile(
    "flight_shuffle", derandomize=IN_CI, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
settings.load_profile("flight_shuffle")
