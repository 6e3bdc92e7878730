package org.apache.spark.shuffle.flight.fetch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Error;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.shuffle.flight.wire.PulledBlocks;

/**
 * Puts the blocks of one pull together and judges them: no I/O of its own, no threads.
 *
 * <p>The worker serves what was asked for in that order (docs/protocol.md, Pull), so one cursor finds the place of each
 * block. A wanted block is whole when a block behind it has arrived, on the same ordered stream, and is given out then: the
 * task works on it while the rest is on its way. The last one is whole when the totals at the end agree with what arrived.
 * If they do not, it fails, for good: so does the task, and with it whatever it made of the blocks before.
 */
final class BlockAssembler {
  /** The outcome of one wanted block: {@code buffer}, which the listener releases, or {@code failure}. */
  record Outcome(WantedBlock wanted, ManagedBuffer buffer, FlightException failure) {}

  /** Receives the outcome of each wanted block once, in their order. */
  interface Listener {
    void settled(Outcome outcome);
  }

  private final String peer;
  private final List<WantedBlock> wanted;
  private final BlockSink[] sinks;
  private final Supplier<BlockSink> newSink;
  private final Listener listener;
  private final BlockTotals totals = new BlockTotals();
  private final Map<Long, FlightException> failedMaps = new HashMap<>();
  private final Set<WantedBlock> corrupt = new HashSet<>();
  private int cursor;
  private int settled;
  private boolean ended;

  BlockAssembler(String peer, List<WantedBlock> wanted, Supplier<BlockSink> newSink, Listener listener) {
    this.peer = peer;
    this.wanted = wanted;
    this.sinks = new BlockSink[wanted.size()];
    this.newSink = newSink;
    this.listener = listener;
  }

  /** Takes the blocks of one message, which keeps its own reference to them. */
  void accept(PulledBlocks batch) throws IOException {
    if (ended && batch.rows() > 0) {
      throw contradiction("served blocks behind the end of a pull");
    }
    for (int row = 0; row < batch.rows(); row++) {
      advanceTo(batch.map(row), batch.partition(row));
      totals.add(
          batch.partition(row), batch.checksum(row), batch.length(row), batch.rawLength(row), batch.records(row));
      if (!batch.intact(row) || batch.rawLength(row) != batch.length(row)) {
        corrupt.add(wanted.get(cursor));
        continue;
      }
      if (sinks[cursor] == null) {
        sinks[cursor] = newSink.get();
      }
      sinks[cursor].add(batch.body(), batch.offset(row), batch.length(row));
    }
  }

  private void advanceTo(long map, int partition) throws IOException {
    int next = cursor;
    while (next < wanted.size() && !wanted.get(next).holds(map, partition)) {
      next++;
    }
    if (next == wanted.size()) {
      throw contradiction("served partition " + partition + " of map " + map + " out of turn");
    }
    cursor = next;
    settleBefore(cursor);
  }

  /** Repeating a pull mends a worker's contradiction only as long as nothing of that pull was given out. */
  private FlightException contradiction(String what) {
    return settled == 0 ? FlightException.broken(peer, what, null) : FlightException.found(peer, ErrorCode.INTERNAL, what);
  }

  /** Takes a control message: the end, or the error of one map output. */
  void accept(GetControl control) throws IOException {
    if (control.hasError()) {
      Error error = control.getError();
      FlightException failure = FlightException.reported(peer, error);
      if (!error.hasOutput()) {
        throw failure;
      }
      failedMaps.put(error.getOutput().getMap(), failure);
    }
    if (control.hasEnd()) {
      Totals arrived = totals.toMessage();
      if (!arrived.equals(control.getEnd())) {
        throw contradiction(
            "the totals of a pull differ: sent " + text(control.getEnd()) + ", arrived " + text(arrived));
      }
      settleBefore(wanted.size());
      ended = true; // not before: a pull that ended with blocks unanswered would never be answered
    }
  }

  private static String text(Totals totals) {
    return totals.getBlocks() + " blocks, " + totals.getBytes() + " bytes, digest "
        + Integer.toHexString(totals.getDigest());
  }

  boolean ended() {
    return ended;
  }

  /** How many of the wanted blocks were given out. */
  int settled() {
    return settled;
  }

  private void settleBefore(int end) throws IOException {
    while (settled < end) {
      WantedBlock block = wanted.get(settled);
      BlockSink sink = sinks[settled];
      FlightException failure = failure(block, sink);
      ManagedBuffer buffer = failure == null ? sink.finish() : null;
      if (failure != null && sink != null) {
        sink.discard();
      }
      sinks[settled++] = null;
      listener.settled(new Outcome(block, buffer, failure));
    }
  }

  private FlightException failure(WantedBlock block, BlockSink sink) {
    if (corrupt.contains(block)) {
      return FlightException.found(peer, ErrorCode.BLOCK_CORRUPT, "checksum differs in " + block.blockId());
    }
    FlightException failed = failedMaps.get(block.map());
    if (failed == null && sink == null) {
      failed = FlightException.found(peer, ErrorCode.MAP_OUTPUT_LOST, "nothing served of " + block.blockId());
    }
    return failed;
  }

  /** Frees what has gathered. */
  void discard() {
    for (int i = 0; i < sinks.length; i++) {
      if (sinks[i] != null) {
        sinks[i].discard();
        sinks[i] = null;
      }
    }
  }
}
