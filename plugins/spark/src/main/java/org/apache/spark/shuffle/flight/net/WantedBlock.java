package org.apache.spark.shuffle.flight.net;

import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.MapRange;

/**
 * A run of partitions of one map output that a reader asks for: what Spark calls one block.
 *
 * @param blockId Spark's name of it: {@code shuffle_<shuffle>_<map>_<reduce>} ({@code ShuffleBlockId}) or
 *     {@code shuffle_<shuffle>_<map>_<firstReduce>_<endReduce>} ({@code ShuffleBlockBatchId})
 */
public record WantedBlock(String blockId, long map, int firstPartition, int endPartition) {
  /** Spark's map ids are task attempt ids already, so every map output here is the attempt 0 of its own map. */
  public static final long ATTEMPT = 0;

  public static WantedBlock parse(String blockId) {
    String[] parts = blockId.split("_");
    if (!parts[0].equals("shuffle") || parts.length < 4 || parts.length > 5) {
      throw new IllegalArgumentException("not a shuffle block: " + blockId);
    }
    int first = Integer.parseInt(parts[3]);
    int end = parts.length == 5 ? Integer.parseInt(parts[4]) : first + 1;
    return new WantedBlock(blockId, Long.parseLong(parts[2]), first, end);
  }

  boolean holds(long mapId, int partition) {
    return mapId == map && partition >= firstPartition && partition < endPartition;
  }

  MapAttempt output() {
    return MapAttempt.newBuilder().setMap(map).setAttempt(ATTEMPT).build();
  }

  MapRange toMessage() {
    return MapRange.newBuilder()
        .setMap(map)
        .setAttempt(ATTEMPT)
        .setFirstPartition(firstPartition)
        .setEndPartition(endPartition)
        .build();
  }
}
