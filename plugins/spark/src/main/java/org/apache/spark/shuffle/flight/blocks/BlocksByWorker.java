package org.apache.spark.shuffle.flight.blocks;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.MapOutputTracker;
import org.apache.spark.shuffle.flight.blocks.FollowingBlocks.Following;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.collection.mutable.ArrayBuffer;

/**
 * The blocks of one reader in the order of their maps, which is the order that Spark's own shuffle gives them in local mode:
 * what {@code first}, {@code collect_list} or {@code limit} answer does not depend on which block arrives first.
 *
 * <p>{@code MapOutputTracker} lists them by location, which is one per map output, in no order.
 */
public final class BlocksByWorker {
  /** The blocks of one map, those of ascending partitions. */
  private record OfMap(String worker, int index, Seq<Tuple3<BlockId, Object, Object>> blocks) {}

  private final List<OfMap> maps = new ArrayList<>();
  private final Map<Long, BlockManagerId> locations = new HashMap<>();
  private final Map<Long, Integer> indexes = new HashMap<>();
  private final Map<Long, Long> outputs = new HashMap<>(); // of maps whose output has another number than they

  /** What a reader of these maps and partitions has to fetch, as {@code tracker} knows it in this process. */
  public static BlocksByWorker of(
      MapOutputTracker tracker, int shuffle, int startMapIndex, int endMapIndex, int startPartition, int endPartition) {
    return new BlocksByWorker(
        tracker.getMapSizesByExecutorId(shuffle, startMapIndex, endMapIndex, startPartition, endPartition));
  }

  /** @param byLocation as {@code MapOutputTracker.getMapSizesByExecutorId} gives it: (block, size, map index) by location */
  BlocksByWorker(Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> byLocation) {
    while (byLocation.hasNext()) {
      Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> entry = byLocation.next();
      ShuffleBlockId first = (ShuffleBlockId) entry._2().head()._1();
      int index = (Integer) entry._2().head()._3();
      String worker = MapLocation.worker(entry._1().executorId());
      maps.add(new OfMap(worker, index, toFetch(entry._1(), entry._2())));
      locations.put(first.mapId(), entry._1());
      indexes.put(first.mapId(), index);
      long output = MapLocation.output(entry._1());
      if (output != first.mapId()) { // spark.shuffle.useOldFetchProtocol: Spark's map ids are partition numbers
        outputs.put(first.mapId(), output);
      }
    }
    maps.sort(Comparator.comparingInt(OfMap::index));
  }

  /** The blocks of one map output with the sizes that there are to fetch, for those that Spark plans with. */
  private static Seq<Tuple3<BlockId, Object, Object>> toFetch(
      BlockManagerId location, Seq<Tuple3<BlockId, Object, Object>> blocks) {
    long share = MapLocation.share(location);
    if (share == MapLocation.WHOLE) {
      return blocks;
    }
    ArrayBuffer<Tuple3<BlockId, Object, Object>> found = new ArrayBuffer<>();
    for (Iterator<Tuple3<BlockId, Object, Object>> each = blocks.iterator(); each.hasNext(); ) {
      Tuple3<BlockId, Object, Object> block = each.next();
      long size = Math.max(1, (Long) block._2() * share / MapLocation.WHOLE);
      found.$plus$eq(new Tuple3<>(block._1(), size, block._3()));
    }
    return found;
  }

  /** The bytes of the worker that has most of them, as far as Spark knows: it keeps sizes to within a tenth, or averages. */
  public long most() {
    Map<String, Long> bytes = new HashMap<>();
    maps.forEach(map -> bytes.merge(map.worker(), bytes(map.blocks()), Long::sum));
    return bytes.values().stream().mapToLong(each -> each).max().orElse(0);
  }

  /** The bytes of all of them, as far as Spark knows. */
  public long bytes() {
    return maps.stream().mapToLong(map -> bytes(map.blocks())).sum();
  }

  private static long bytes(Seq<Tuple3<BlockId, Object, Object>> blocks) {
    long sum = 0;
    for (Iterator<Tuple3<BlockId, Object, Object>> each = blocks.iterator(); each.hasNext(); ) {
      sum += (Long) each.next()._2();
    }
    return sum;
  }

  /** Cuts them into windows, once: this keeps none of them. */
  public FetchWindows windows(FetchWindows.Limits limits) {
    FetchWindows windows = new FetchWindows(limits);
    maps.forEach(map -> windows.add(map.worker(), map.blocks()));
    maps.clear();
    return windows;
  }

  /** One by one. */
  List<Following> each() {
    List<Following> all = new ArrayList<>();
    for (OfMap map : maps) {
      for (Iterator<Tuple3<BlockId, Object, Object>> each = map.blocks().iterator(); each.hasNext(); ) {
        Tuple3<BlockId, Object, Object> block = each.next();
        ShuffleBlockId id = (ShuffleBlockId) block._1();
        WantedBlock wanted = new WantedBlock(id.name(), output(id.mapId()), id.reduceId(), id.reduceId() + 1);
        all.add(new Following(map.worker(), wanted, (Long) block._2()));
      }
    }
    return all;
  }

  /** The number at its worker of a map's output, by map id. */
  public long output(long map) {
    return outputs.isEmpty() ? map : outputs.getOrDefault(map, map);
  }

  /** The location of each map output, by map id. */
  public Map<Long, BlockManagerId> locations() {
    return locations;
  }

  /** The index of each map output in its stage, by map id. */
  public Map<Long, Integer> indexes() {
    return indexes;
  }
}
