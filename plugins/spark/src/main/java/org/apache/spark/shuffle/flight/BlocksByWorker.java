package org.apache.spark.shuffle.flight;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
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

  /** @param byLocation as {@code MapOutputTracker.getMapSizesByExecutorId} gives it: (block, size, map index) by location */
  BlocksByWorker(Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> byLocation) {
    while (byLocation.hasNext()) {
      Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> entry = byLocation.next();
      String worker = MapLocation.worker(entry._1().executorId());
      blocks.computeIfAbsent(worker, id -> new ArrayBuffer<>()).addAll(entry._2());
      ShuffleBlockId first = (ShuffleBlockId) entry._2().head()._1();
      locations.put(first.mapId(), entry._1());
      indexes.put(first.mapId(), (Integer) entry._2().head()._3());
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
    long most = 0;
    for (ArrayBuffer<Tuple3<BlockId, Object, Object>> ofWorker : blocks.values()) {
      long sum = 0;
      for (int i = 0; i < ofWorker.size(); i++) {
        sum += (Long) ofWorker.apply(i)._2();
      }
      most = Math.max(most, sum);
    }
    return most;
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
