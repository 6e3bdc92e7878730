"""`python -m flight_shuffle`: the command line."""

import sys

from shuffle_server.cli import main

sys.exit(main())
