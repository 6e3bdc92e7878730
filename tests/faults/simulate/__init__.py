"""A deterministic simulation of a cluster: the product's own servers over a simulated clock, disk and network.

`python -m tests.faults.simulate` runs schedules (docs/faults.md). One thread at a time runs, chosen by a seeded
generator at calls, waits, sleeps and file operations; so a schedule replays exactly from its seed, and any of those
steps can be the last one of a process.
"""
