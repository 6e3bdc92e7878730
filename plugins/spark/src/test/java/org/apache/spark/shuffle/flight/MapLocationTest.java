package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.apache.spark.shuffle.flight.net.WorkerAddress;
import org.apache.spark.storage.BlockManagerId;
import org.junit.jupiter.api.Test;
import scala.Option;

class MapLocationTest {
  private static final BlockManagerId EXECUTOR = BlockManagerId.apply("3", "node7", 4040, Option.empty());

  @Test
  void everyMapOutputHasAnExecutorIdOfItsOwnOnTheExecutorsHost() {
    BlockManagerId location = MapLocation.ofMap("w-1.a", 17, EXECUTOR);
    assertEquals("node7", location.host());
    assertEquals(4040, location.port());
    assertEquals("w-1.a", MapLocation.worker(location.executorId()));
    assertNotEquals(location.executorId(), MapLocation.ofMap("w-1.a", 18, EXECUTOR).executorId());
  }

  @Test
  void addressOfAWorkerHasAHostThatNoExecutorHas() {
    BlockManagerId address = MapLocation.ofWorker(new WorkerAddress("w1", "node7", 5000));
    assertNotEquals("node7", address.host());
    assertEquals("w1", MapLocation.worker(address.executorId()));
  }

  @Test
  void executorIsNoWorker() {
    assertThrows(IllegalStateException.class, () -> MapLocation.worker("3"));
  }
}
