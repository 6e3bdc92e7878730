"""The standalone Flight Shuffle server: master, worker, store, command line."""

__version__ = "0.1.0"
