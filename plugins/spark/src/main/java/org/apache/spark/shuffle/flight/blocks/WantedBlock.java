package org.apache.spark.shuffle.flight.blocks;

import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.MapRange;

/**
 * A run of partitions of one map output that a reader asks for: what Spark calls one block.
 *
 * @param blockId Spark's name of it: {@code shuffle_<shuffle>_<map>_<reduce>} ({@code ShuffleBlockId}) or
 *     {@code shuffle_<shuffle>_<map>_<firstReduce>_<endReduce>} ({@code ShuffleBlockBatchId})
 * @param map the output's number at the worker, which with {@code spark.shuffle.useOldFetchProtocol} is not Spark's map id
 */
public record WantedBlock(String blockId, long map, int firstPartition, int endPartition) {
  /** Outputs are numbered by the task attempts that write them, so each is the attempt 0 of a map of its own. */
  public static final long ATTEMPT = 0;

  /** @param outputs the number at the worker of a map output, by Spark's map id */
  public static WantedBlock parse(String blockId, LongUnaryOperator outputs) {
    String[] parts = blockId.split("_");
    if (!parts[0].equals("shuffle") || parts.length < 4 || parts.length > 5) {
      throw new IllegalArgumentException("not a shuffle block: " + blockId);
    }
    int first = Integer.parseInt(parts[3]);
    int end = parts.length == 5 ? Integer.parseInt(parts[4]) : first + 1;
    return new WantedBlock(blockId, outputs.applyAsLong(Long.parseLong(parts[2])), first, end);
  }

  /** Spark's map id in the name of a block. */
  public static long mapId(String blockId) {
    int start = blockId.indexOf('_', blockId.indexOf('_') + 1) + 1;
    return Long.parseLong(blockId, start, blockId.indexOf('_', start), 10);
  }

  /** {@code blocks} in their order, those of one map together whose partitions follow each other. */
  public static List<List<WantedBlock>> runs(List<WantedBlock> blocks) {
    List<List<WantedBlock>> runs = new ArrayList<>();
    int start = 0;
    for (int i = 1; i <= blocks.size(); i++) {
      if (i == blocks.size() || !blocks.get(i).follows(blocks.get(i - 1))) {
        runs.add(blocks.subList(start, i));
        start = i;
      }
    }
    return runs;
  }

  private boolean follows(WantedBlock before) {
    return map == before.map && firstPartition == before.endPartition;
  }

  public boolean holds(long mapId, int partition) {
    return mapId == map && partition >= firstPartition && partition < endPartition;
  }

  public MapAttempt output() {
    return MapAttempt.newBuilder().setMap(map).setAttempt(ATTEMPT).build();
  }

  public MapRange toMessage() {
    return range(List.of(this));
  }

  /** One of {@link #runs}. */
  public static MapRange range(List<WantedBlock> run) {
    return MapRange.newBuilder()
        .setMap(run.get(0).map)
        .setAttempt(ATTEMPT)
        .setFirstPartition(run.get(0).firstPartition)
        .setEndPartition(run.get(run.size() - 1).endPartition)
        .build();
  }
}
