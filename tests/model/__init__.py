"""A model of a large cluster: the product's registry, placement and compaction code over simulated machines.

`python -m tests.model` runs it (docs/model.md). Real: the master with its log, membership, placement and the services
that calls end in; the clients' memory of placements; of each worker the catalog and what decides about compaction.
Simulated: time, disks, network, and the tasks of the applications. Blocks are counted by output, never one by one.
"""
