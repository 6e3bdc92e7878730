package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
    BlockManagerId address = MapLocation.ofWorker("w1");
    assertNotEquals("node7", address.host());
    assertEquals("w1", MapLocation.worker(address.executorId()));
  }

  @Test
  void emptyOutputLiesAtNoWorker() {
    BlockManagerId empty = MapLocation.ofEmpty(17, EXECUTOR);
    assertEquals("node7", empty.host());
    assertFalse(MapLocation.isAtAWorker(empty));
    assertFalse(MapLocation.isAtAWorker(EXECUTOR));
    assertTrue(MapLocation.isAtAWorker(MapLocation.ofMap("w1", 17, EXECUTOR)));
  }

  @Test
  void outputsOfAWorkerAreToldFromThoseOfOneWithALongerName() {
    assertTrue(MapLocation.isAt(MapLocation.ofMap("w1", 17, EXECUTOR), "w1"));
    assertFalse(MapLocation.isAt(MapLocation.ofMap("w12", 17, EXECUTOR), "w1"));
  }

  @Test
  void executorIsNoWorker() {
    assertThrows(IllegalStateException.class, () -> MapLocation.worker("3"));
  }
}
