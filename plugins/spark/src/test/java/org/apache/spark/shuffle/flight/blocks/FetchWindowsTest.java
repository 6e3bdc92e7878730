package org.apache.spark.shuffle.flight.blocks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockId;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.JavaConverters;
import scala.collection.Seq;

class FetchWindowsTest {
  private static final BlockManagerId EXECUTOR = BlockManagerId.apply("1", "host", 7077, Option.empty());
  private static final FetchWindows.Limits WIDE = new FetchWindows.Limits(1 << 20, 1 << 20, 1 << 20, 1 << 20);

  private static Seq<Tuple3<BlockId, Object, Object>> blocks(int map, long... sizes) {
    List<Tuple3<BlockId, Object, Object>> all = new ArrayList<>();
    for (int partition = 0; partition < sizes.length; partition++) {
      all.add(new Tuple3<>(new ShuffleBlockId(7, 100 + map, partition), sizes[partition], map));
    }
    return JavaConverters.asScalaBuffer(all);
  }

  /** Each window as "worker:map.partition ..." */
  private static List<String> cut(FetchWindows windows) {
    List<String> all = new ArrayList<>();
    for (Map<String, Seq<Tuple3<BlockId, Object, Object>>> each = windows.next(); !each.isEmpty(); each = windows.next()) {
      StringBuilder text = new StringBuilder();
      each.forEach(
          (worker, its) -> {
            text.append(worker).append(':');
            JavaConverters.seqAsJavaList(its).forEach(
                block -> text.append(block._3()).append('.').append(((ShuffleBlockId) block._1()).reduceId()).append(' '));
          });
      all.add(text.toString().strip());
    }
    return all;
  }

  private static FetchWindows windows(FetchWindows.Limits limits) {
    FetchWindows windows = new FetchWindows(limits);
    windows.add("w", blocks(0, 10, 10));
    windows.add("v", blocks(1, 10, 10));
    windows.add("w", blocks(2, 10, 10));
    return windows;
  }

  @Test
  void oneWindowHasAllThatFits() {
    assertEquals(List.of("w:0.0 0.1 2.0 2.1 v:1.0 1.1"), cut(windows(WIDE)));
    assertEquals(List.of(), cut(new FetchWindows(WIDE)));
  }

  @Test
  void bytesEndAWindow() {
    assertEquals(
        List.of("w:0.0 0.1 v:1.0", "v:1.1 w:2.0 2.1"), cut(windows(new FetchWindows.Limits(30, 1 << 20, 9, 9))));
  }

  @Test
  void blockThatIsLargerThanAWindowHasItsOwn() {
    FetchWindows windows = new FetchWindows(new FetchWindows.Limits(30, 1 << 20, 9, 9));
    windows.add("w", blocks(0, 10, 99, 10));
    assertEquals(List.of("w:0.0", "w:0.1", "w:0.2"), cut(windows));
  }

  @Test
  void requestsEndAWindow() {
    assertEquals(
        List.of("w:0.0 0.1", "v:1.0 1.1", "w:2.0 2.1"), cut(windows(new FetchWindows.Limits(1 << 20, 1 << 20, 1, 9))));
    // A request ends at 10 bytes; further blocks may begin another.
    assertEquals(List.of("w:0.0 0.1", "v:1.0 1.1", "w:2.0 2.1"), cut(windows(new FetchWindows.Limits(1 << 20, 10, 4, 9))));
  }

  @Test
  void blocksOfOneWorkerEndAWindow() {
    assertEquals(
        List.of("w:0.0 0.1 v:1.0 1.1", "w:2.0 2.1"), cut(windows(new FetchWindows.Limits(1 << 20, 1 << 20, 9, 2))));
  }

  @Test
  void limitsAreHalfOfWhatMayBeInFlight() {
    assertEquals(new FetchWindows.Limits(24 << 20, (48 << 20) / 5, 5, 7), FetchWindows.Limits.of(48 << 20, 10, 7));
    assertTrue(FetchWindows.Limits.of(1, 1, 1).requests() > 0);
  }

  @Test
  void readerGetsBlocksInTheOrderOfTheMaps() {
    Map<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> byLocation = new LinkedHashMap<>();
    for (int map : new int[] {2, 0, 1}) {
      byLocation.put(MapLocation.ofMap(map == 1 ? "v" : "w", 100 + map, EXECUTOR), blocks(map, 10, 10));
    }
    BlocksByWorker blocks =
        new BlocksByWorker(
            JavaConverters.asScalaIterator(
                byLocation.entrySet().stream()
                    .map(each -> new Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>(each.getKey(), each.getValue()))
                    .iterator()));
    assertEquals(40, blocks.most());
    assertEquals(60, blocks.bytes());
    assertEquals(
        List.of("shuffle_7_100_0", "shuffle_7_100_1", "shuffle_7_101_0", "shuffle_7_101_1", "shuffle_7_102_0", "shuffle_7_102_1"),
        blocks.each().stream().map(each -> each.block().blockId()).toList());
    assertEquals(
        List.of("w:0.0 0.1 v:1.0 1.1", "w:2.0 2.1"), cut(blocks.windows(new FetchWindows.Limits(40, 1 << 20, 9, 9))));
  }
}
