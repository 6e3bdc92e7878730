package org.apache.spark.shuffle.flight.fetch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Blocks arrive here by hand: of a fetch that was never started. */
class PrefetchedBlocksTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final List<WantedBlock> BLOCKS = wanted("shuffle_7_1_5", "shuffle_7_1_6", "shuffle_7_2_5", "shuffle_7_2_6");
  private static final List<WantedBlock> FIVE = List.of(BLOCKS.get(0), BLOCKS.get(2));
  private static final List<WantedBlock> SIX = List.of(BLOCKS.get(1), BLOCKS.get(3));
  private static final int MOST = 40;

  private final FakeWorker worker = new FakeWorker(call -> null);
  private final PrefetchedBlocks fetch =
      new PrefetchedBlocks(
          new BlockFetcher(
              new LocalFileAccess(worker.connections(), false, LONG), ShuffleKey.getDefaultInstance(), LONG, LONG, 0, null),
          "w", BLOCKS, MOST);
  private final Map<String, ByteBuf> buffers = new HashMap<>();
  private final List<String> heard = new ArrayList<>();

  PrefetchedBlocksTest() throws IOException {}

  @AfterEach
  void everythingIsFreed() {
    fetch.drop();
    worker.close();
    buffers.forEach((block, data) -> assertEquals(0, data.refCnt(), block));
  }

  private static List<WantedBlock> wanted(String... ids) {
    return Stream.of(ids).map(id -> WantedBlock.parse(id, LongUnaryOperator.identity())).toList();
  }

  private void arrives(WantedBlock block) {
    ByteBuf data = Unpooled.copiedBuffer(new byte[10]);
    buffers.put(block.blockId(), data);
    fetch.onBlockFetchSuccess(block.blockId(), new NettyManagedBuffer(data));
    data.release(); // as who fetches does
  }

  private boolean take(String task, List<WantedBlock> wanted) {
    return fetch.take(
        wanted,
        new BlockFetchingListener() {
          @Override
          public void onBlockFetchSuccess(String block, ManagedBuffer data) {
            heard.add(task + " " + block + " " + data.size());
          }

          @Override
          public void onBlockFetchFailure(String block, Throwable why) {
            throw new AssertionError(why);
          }
        },
        () -> heard.add(task + " fetches its own"));
  }

  @Test
  void nothingIsGivenOutBeforeAllHasArrived() {
    assertTrue(take("early", FIVE));
    BLOCKS.subList(0, 3).forEach(this::arrives);
    assertEquals(List.of(), heard);
    arrives(BLOCKS.get(3));
    assertEquals(List.of("early shuffle_7_1_5 10", "early shuffle_7_2_5 10"), heard);
    assertTrue(take("late", SIX));
    assertEquals(List.of("late shuffle_7_1_6 10", "late shuffle_7_2_6 10"), heard.subList(2, 4));
  }

  @Test
  void eachIsGivenOutOnce() {
    assertTrue(take("first", FIVE));
    assertTrue(take("second", FIVE));
    BLOCKS.forEach(this::arrives);
    assertEquals("second fetches its own", heard.get(2));
    assertFalse(take("third", FIVE));
    assertEquals(3, heard.size());
  }

  @Test
  void allOfARequestOrNothing() {
    BLOCKS.forEach(this::arrives);
    assertFalse(take("more", wanted("shuffle_7_1_5", "shuffle_7_3_5")), "another map, run again perhaps");
    assertTrue(take("less", FIVE.subList(0, 1)));
    assertFalse(take("rest", FIVE));
  }

  @Test
  void whereTheExecutorStopsNothingIsReadAhead() {
    assertTrue(take("early", FIVE));
    worker.connections().close();
    fetch.start();
    assertEquals(List.of("early fetches its own"), heard);
    assertTrue(fetch.gone());
  }

  @Test
  void whatNobodyExpectsAtTheStartLeavesNobodyWaiting() {
    assertTrue(take("early", FIVE));
    worker.introduce(70_000); // no port is
    fetch.start();
    assertEquals(List.of("early fetches its own"), heard);
    assertTrue(fetch.gone());
  }

  @Test
  void oneThatFailsFailsAll() {
    assertTrue(take("early", FIVE));
    arrives(BLOCKS.get(0));
    fetch.onBlockFetchFailure("shuffle_7_2_5", new IOException("corrupt"));
    assertEquals(List.of("early fetches its own"), heard);
    arrives(BLOCKS.get(1)); // what was under way
    assertFalse(take("late", FIVE));
  }

  @Test
  void moreThanWasThoughtIsLeft() {
    assertTrue(take("early", FIVE));
    arrives(BLOCKS.get(0));
    ByteBuf large = Unpooled.copiedBuffer(new byte[MOST]);
    buffers.put("large", large);
    fetch.onBlockFetchSuccess("shuffle_7_1_6", new NettyManagedBuffer(large));
    large.release();
    assertEquals(List.of("early fetches its own"), heard);
  }

  @Test
  void whoWaitsForWhatIsDroppedFetchesItsOwn() {
    assertTrue(take("early", FIVE));
    fetch.drop();
    fetch.drop();
    assertEquals(List.of("early fetches its own"), heard);
  }
}
