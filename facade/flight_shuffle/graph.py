"""`shuffle_api.graph`, under the name of the distribution; with the tasks that run again after a loss."""

from shuffle_api.graph import Edge, JobGraph, Task, TaskOutput
from shuffle_api.graph_failover import Lost, failover_scope, pipelined_regions

__all__ = ["Edge", "JobGraph", "Lost", "Task", "TaskOutput", "failover_scope", "pipelined_regions"]
