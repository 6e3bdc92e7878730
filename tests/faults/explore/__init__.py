"""A fault explorer: jobs over real processes under seeded faults, and an oracle that reads every record."""
