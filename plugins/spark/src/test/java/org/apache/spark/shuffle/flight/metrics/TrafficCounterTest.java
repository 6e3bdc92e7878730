package org.apache.spark.shuffle.flight.metrics;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;

class TrafficCounterTest {
  @Test
  void counterSumsByWorker() {
    TrafficCounter counter = new TrafficCounter();
    assertTrue(counter.isZero());
    counter.merge(new TrafficCounter());
    assertTrue(counter.isZero());
    counter.add(Traffic.written("a", true, 10, 1, 100));
    TrafficCounter other = counter.copy();
    other.add(Traffic.written("a", false, 5, 2, 0));
    counter.add(Traffic.written("b", false, 7, 3, 0));
    counter.merge(other);
    assertEquals(
        Map.of("a", new WorkerTraffic(3, 20, 5, 4, 200, 0, 0), "b", new WorkerTraffic(1, 0, 7, 3, 0, 0, 0)),
        counter.value().workers());
    assertTrue(counter.copyAndReset().isZero());
    assertEquals(32, counter.value().bytesWritten());
  }

  @Test
  void readerCountsBytesByWorkerOnce() {
    ReadTraffic read = new ReadTraffic();
    read.countRecord();
    assertEquals(new Traffic(Map.of(), 1, 0), read.take(worker -> true));
    assertTrue(read.take(worker -> true).empty());
  }
}
