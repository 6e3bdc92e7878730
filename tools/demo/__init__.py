"""The demo: a PySpark pipeline over real input, through Flight Shuffle and through Spark's own sort shuffle."""
