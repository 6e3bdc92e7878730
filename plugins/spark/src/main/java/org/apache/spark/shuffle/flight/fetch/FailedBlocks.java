package org.apache.spark.shuffle.flight.fetch;

import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;

/** The blocks of one request that cannot be had, and why: the report to the master, and the failures of the task. */
final class FailedBlocks {
  /** What concerns the data, and not whether the worker can be reached or is busy. */
  private static final Set<ErrorCode> LOSSES = EnumSet.of(ErrorCode.MAP_OUTPUT_LOST, ErrorCode.BLOCK_CORRUPT);

  /** What a report to the master says. */
  record Report(List<MapAttempt> outputs, String reason) {}

  private final Map<WantedBlock, FlightException> failures = new LinkedHashMap<>();

  /** The first reason counts. */
  void add(WantedBlock block, FlightException failure) {
    failures.putIfAbsent(block, failure);
  }

  boolean isEmpty() {
    return failures.isEmpty();
  }

  /** The map outputs that are lost or corrupt, each once; null when none is. */
  Report report() {
    List<Map.Entry<WantedBlock, FlightException>> lost =
        failures.entrySet().stream().filter(failed -> LOSSES.contains(failed.getValue().code())).toList();
    if (lost.isEmpty()) {
      return null;
    }
    return new Report(
        lost.stream().map(failed -> failed.getKey().output()).distinct().toList(), lost.get(0).getValue().getMessage());
  }

  List<WantedBlock> blocks() {
    return List.copyOf(failures.keySet());
  }

  /** Forgets those that {@code left} has not: they are fetched from elsewhere. */
  void retain(List<WantedBlock> left) {
    failures.keySet().retainAll(left);
  }

  /** Answers each, in the order in which they failed. */
  void answer(BlockFetchingListener listener) {
    failures.forEach((block, failure) -> listener.onBlockFetchFailure(block.blockId(), failure));
  }
}
