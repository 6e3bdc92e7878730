"""What benchmarks, tests and the demo share: processes of servers and Spark drivers, turns, reports, the machine."""
