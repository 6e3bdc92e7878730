"""Measurements and the demo: programs run from a checkout, not shipped in the wheel."""
