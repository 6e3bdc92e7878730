"""The JVM client of Flight Shuffle against Arrow's own (flight-core), each with a Python sink and source."""
