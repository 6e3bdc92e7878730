package org.apache.spark.shuffle.flight;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.MapOutputTracker;
import org.apache.spark.shuffle.flight.net.FollowingBlocks.Following;
import org.apache.spark.shuffle.flight.net.WantedBlock;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.collection.mutable.ArrayBuffer;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The blocks of one reader, regrouped. {@code MapOutputTracker} lists them by location, which is one per map output; the
 * fetcher makes requests per address, so it gets them by worker: one pull for a bounded range, however many maps.
 */
final class BlocksByWorker {
  private final Map<String, ArrayBuffer<Tuple3<BlockId, Object, Object>>> blocks = new LinkedHashMap<>();
  private final Map<Long, BlockManagerId> locations = new HashMap<>();
  private final Map<Long, Integer> indexes = new HashMap<>();
  private final Map<Long, Long> outputs = new HashMap<>(); // of maps whose output has another number than they

  /** What a reader of these maps and partitions has to fetch, as {@code tracker} knows it in this process. */
  static BlocksByWorker of(
      MapOutputTracker tracker, int shuffle, int startMapIndex, int endMapIndex, int startPartition, int endPartition) {
    return new BlocksByWorker(
        tracker.getMapSizesByExecutorId(shuffle, startMapIndex, endMapIndex, startPartition, endPartition));
  }

  /** @param byLocation as {@code MapOutputTracker.getMapSizesByExecutorId} gives it: (block, size, map index) by location */
  private BlocksByWorker(Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> byLocation) {
    while (byLocation.hasNext()) {
      Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> entry = byLocation.next();
      String worker = MapLocation.worker(entry._1().executorId());
      add(blocks.computeIfAbsent(worker, id -> new ArrayBuffer<>()), entry._1(), entry._2());
      ShuffleBlockId first = (ShuffleBlockId) entry._2().head()._1();
      locations.put(first.mapId(), entry._1());
      indexes.put(first.mapId(), (Integer) entry._2().head()._3());
      long output = MapLocation.output(entry._1());
      if (output != first.mapId()) { // spark.shuffle.useOldFetchProtocol: Spark's map ids are partition numbers
        outputs.put(first.mapId(), output);
      }
    }
  }

  /** Adds the blocks of one map output with the sizes that there are to fetch, for those that Spark plans with. */
  private static void add(
      ArrayBuffer<Tuple3<BlockId, Object, Object>> ofWorker, BlockManagerId location,
      Seq<Tuple3<BlockId, Object, Object>> blocks) {
    long share = MapLocation.share(location);
    if (share == MapLocation.WHOLE) {
      ofWorker.addAll(blocks);
      return;
    }
    for (int i = 0; i < blocks.size(); i++) {
      Tuple3<BlockId, Object, Object> block = blocks.apply(i);
      long size = Math.max(1, (Long) block._2() * share / MapLocation.WHOLE);
      ofWorker.addOne(new Tuple3<>(block._1(), size, block._3()));
    }
  }

  /** The blocks by the address that {@code addresses} gives for a worker. */
  Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> grouped(
      java.util.function.Function<String, BlockManagerId> addresses) {
    return CollectionConverters.asScala(
        blocks.entrySet().stream()
            .map(e -> new Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>(
                addresses.apply(e.getKey()), e.getValue()))
            .iterator());
  }

  /** The bytes of the worker that has most of them, as far as Spark knows: it keeps sizes to within a tenth, or averages. */
  long most() {
    return blocks.values().stream().mapToLong(BlocksByWorker::bytes).max().orElse(0);
  }

  /** The bytes of all of them, as far as Spark knows. */
  long bytes() {
    return blocks.values().stream().mapToLong(BlocksByWorker::bytes).sum();
  }

  private static long bytes(ArrayBuffer<Tuple3<BlockId, Object, Object>> ofWorker) {
    long sum = 0;
    for (int i = 0; i < ofWorker.size(); i++) {
      sum += (Long) ofWorker.apply(i)._2();
    }
    return sum;
  }

  /** One by one, those of a worker in the order in which they are best fetched. */
  List<Following> each() {
    List<Following> all = new ArrayList<>();
    blocks.forEach(
        (worker, ofWorker) -> {
          for (int i = 0; i < ofWorker.size(); i++) {
            ShuffleBlockId id = (ShuffleBlockId) ofWorker.apply(i)._1();
            WantedBlock block = new WantedBlock(id.name(), output(id.mapId()), id.reduceId(), id.reduceId() + 1);
            all.add(new Following(worker, block, (Long) ofWorker.apply(i)._2()));
          }
        });
    return all;
  }

  /** The number at its worker of a map's output, by map id. */
  long output(long map) {
    return outputs.isEmpty() ? map : outputs.getOrDefault(map, map);
  }

  /** The location of each map output, by map id. */
  Map<Long, BlockManagerId> locations() {
    return locations;
  }

  /** The index of each map output in its stage, by map id. */
  Map<Long, Integer> indexes() {
    return indexes;
  }
}
