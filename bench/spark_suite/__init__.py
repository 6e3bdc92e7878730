"""Jobs of Spark through sort shuffle and Flight Shuffle."""
