"""The worker's disk store: one immutable file per committed map output."""
