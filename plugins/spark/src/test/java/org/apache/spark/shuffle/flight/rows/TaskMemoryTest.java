package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

class TaskMemoryTest {
  private static final long MIB = 1 << 20;

  private static long of(String... settings) {
    SparkConf conf = new SparkConf(false);
    for (int i = 0; i < settings.length; i += 2) {
      conf.set(settings[i], settings[i + 1]);
    }
    return TaskMemory.of(conf, 1324 * MIB) / MIB;
  }

  @Test
  void tasksOfLocalModeShareTheDriversHeap() {
    assertEquals(614, of("spark.master", "local"));
    assertEquals(19, of("spark.master", "local[32]"));
    assertEquals(32, of("spark.master", "local[32, 4]", "spark.memory.fraction", "1"));
    assertEquals(76, of("spark.master", "local[32]", "spark.task.cpus", "4"));
  }

  @Test
  void tasksOfAnExecutorShareIts() {
    assertEquals(434, of("spark.master", "yarn"));
    assertEquals(54, of("spark.master", "k8s://host", "spark.executor.cores", "8"));
    assertEquals(127, of("spark.master", "local-cluster[1,1,1024]", "spark.executor.memory", "512m"));
    assertEquals(0, of("spark.master", "yarn", "spark.executor.memory", "300m"));
  }
}
