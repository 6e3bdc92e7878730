package org.apache.spark.shuffle.flight.rows;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext$;

/** How much memory a task of an application may expect to have, by the application's settings. */
public final class TaskMemory {
  /** What Spark's {@code UnifiedMemoryManager} leaves to itself. */
  private static final long RESERVED = 300L << 20;

  private TaskMemory() {}

  /**
   * Bytes of an executor's unified memory for each of the tasks that run at once. Where the settings do not say how many do,
   * one.
   *
   * @param driverHeap bytes that this process may use, in which tasks of local mode run
   */
  public static long of(SparkConf conf, long driverHeap) {
    String master = conf.get("spark.master", "");
    boolean local = master.startsWith("local") && !master.startsWith("local-cluster");
    long heap = local ? driverHeap : conf.getSizeAsMb("spark.executor.memory", "1g") << 20;
    int cores = local ? SparkContext$.MODULE$.numDriverCores(master) : conf.getInt("spark.executor.cores", 1);
    double tasks = Math.max(1, Math.floor(cores / conf.getDouble("spark.task.cpus", 1)));
    return (long) (Math.max(0, heap - RESERVED) * conf.getDouble("spark.memory.fraction", 0.6) / tasks);
  }
}
