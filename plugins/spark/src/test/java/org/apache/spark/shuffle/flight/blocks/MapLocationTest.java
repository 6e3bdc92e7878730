package org.apache.spark.shuffle.flight.blocks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.luben.zstd.Zstd;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.util.Random;
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

  @Test
  void shareThatThereIsToFetchBelongsToTheLocationAndMovesWithIt() {
    BlockManagerId location = MapLocation.ofMap("w/1.a", 17, EXECUTOR);
    assertEquals(location, MapLocation.withShare(location, 500, 500));
    assertEquals(location, MapLocation.withShare(location, 0, 0), "nothing");
    assertEquals(MapLocation.WHOLE, MapLocation.share(location));
    BlockManagerId shared = MapLocation.withShare(location, 1001, 2000);
    assertEquals(501, MapLocation.share(shared));
    assertEquals(1, MapLocation.share(MapLocation.withShare(location, 1, 2_000_000_000_000L)));
    assertEquals(1500, MapLocation.share(MapLocation.withShare(location, 30, 20)), "more than planned with");
    assertEquals(17, MapLocation.output(shared));
    assertEquals("w/1.a", MapLocation.worker(shared.executorId()));
    assertTrue(MapLocation.isAt(shared, "w/1.a"));
    assertTrue(MapLocation.isAtAWorker(shared));
    BlockManagerId moved = MapLocation.moved(shared, "w2*3");
    assertEquals(MapLocation.withShare(MapLocation.ofMap("w2*3", 17, EXECUTOR), 1001, 2000), moved);
    assertEquals(501, MapLocation.share(moved));
    assertEquals(MapLocation.WHOLE, MapLocation.share(MapLocation.ofMap("w2*3", 17, EXECUTOR)));
  }

  @Test
  void locationsOfManyMapsTakeFewBytesInWhatTheDriverSendsToExecutors() throws Exception {
    int maps = 100_000;
    Random random = new Random(7);
    BlockManagerId[] locations = new BlockManagerId[maps];
    for (int map = 0; map < maps; map++) {
      String worker = String.format("w-%012x", 0x5eed_0000_0000L + random.nextInt(200));
      int host = random.nextInt(100);
      BlockManagerId executor = BlockManagerId.apply("" + host, "node" + host + ".example.org", 40_000 + host, Option.empty());
      BlockManagerId location = MapLocation.ofMap(worker, map, executor);
      locations[map] = MapLocation.withShare(location, 400 + random.nextInt(200), 1000);
    }
    int sent = Zstd.compress(serialized(locations)).length / maps;
    assertTrue(sent <= 12, sent + " bytes for each map in a list of all, compressed as Spark does");
  }

  private static byte[] serialized(Object value) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(value);
    }
    return bytes.toByteArray();
  }
}
