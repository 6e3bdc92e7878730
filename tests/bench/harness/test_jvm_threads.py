"""bench.harness.jvm_threads: which of a JVM's stacks say why a job does not go on."""

from bench.harness.jvm_threads import FRAMES, telling

DUMP = """Full thread dump OpenJDK 64-Bit Server VM:

"Idle Worker Monitor for python" #417 daemon
   java.lang.Thread.State: TIMED_WAITING (sleeping)
\tat java.lang.Thread.sleep(Native Method)

"flight-shuffle-io-7" #50 daemon
   java.lang.Thread.State: WAITING (parking)
\tat java.util.concurrent.ThreadPoolExecutor.getTask(ThreadPoolExecutor.java:1062)

"flight-shuffle-io-8" #51 daemon
   java.lang.Thread.State: WAITING (parking)
\tat org.apache.spark.shuffle.flight.driver.LossCheck.read(LossCheck.java:80)

"Thread-4" #36
   java.lang.Thread.State: WAITING (parking)
\tat py4j.commands.CallCommand.execute(CallCommand.java:79)

"dag-scheduler-event-loop" #90 daemon
   java.lang.Thread.State: WAITING (parking)
\tat org.apache.spark.util.EventLoop$$anon$1.run(EventLoop.scala:46)

"Executor task launch worker for task 2.0 in stage 3.0 (TID 20)" #120 daemon
   java.lang.Thread.State: RUNNABLE
\tat sun.nio.ch.EPoll.wait(Native Method)

Heap
 garbage-first heap   total 1048576K, used 314159K
"""


def test_stacks_of_threads_at_work_are_told_the_tasks_first_and_the_heap_last() -> None:
    first_lines = [stack.splitlines()[0].partition(" #")[0] for stack in telling(DUMP)]
    assert [line.strip('"').split(" for ")[0] for line in first_lines] == [
        "Executor task launch worker",
        "dag-scheduler-event-loop",
        "Thread-4",
        "flight-shuffle-io-8",
        "Heap",
    ]


def test_a_deep_stack_is_cut_off() -> None:
    deep = '"Executor task launch worker-0" #1\n' + "\tat org.example.Deep.call(Deep.java:1)\n" * 500
    [told] = telling(deep)
    assert len(told.splitlines()) == FRAMES
