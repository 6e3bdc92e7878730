package org.apache.spark.shuffle.flight.net;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.shuffle.flight.proto.Error;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.shuffle.flight.wire.PulledBatch;

/**
 * Puts the blocks of one pull together and judges them: no I/O of its own, no threads.
 *
 * <p>The worker serves what was asked for in that order (docs/protocol.md, Pull), so one cursor finds the place of each
 * block. Nothing is given out before the totals at the end agree with what arrived: a block that is a stored piece short
 * must not reach a deserializer.
 */
final class BlockAssembler {
  /** What became of one wanted block: {@code buffer}, or {@code failure}. */
  record Outcome(WantedBlock wanted, ManagedBuffer buffer, FlightException failure) {}

  private final String peer;
  private final List<WantedBlock> wanted;
  private final BlockSink[] sinks;
  private final Supplier<BlockSink> newSink;
  private final BlockTotals totals = new BlockTotals();
  private final Map<Long, FlightException> failedMaps = new HashMap<>();
  private final Set<WantedBlock> corrupt = new HashSet<>();
  private int cursor;
  private boolean ended;

  BlockAssembler(String peer, List<WantedBlock> wanted, Supplier<BlockSink> newSink) {
    this.peer = peer;
    this.wanted = wanted;
    this.sinks = new BlockSink[wanted.size()];
    this.newSink = newSink;
  }

  /** Takes the blocks of one message. */
  void accept(PulledBatch batch) throws IOException {
    byte[] body = batch.body();
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
      sinks[cursor].add(body, batch.offset(row), batch.length(row));
    }
  }

  private void advanceTo(long map, int partition) throws IOException {
    while (cursor < wanted.size() && !wanted.get(cursor).holds(map, partition)) {
      cursor++;
    }
    if (cursor == wanted.size()) {
      throw FlightException.broken(peer, "served partition " + partition + " of map " + map + " out of turn", null);
    }
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
        throw FlightException.broken(
            peer, "the totals of a pull differ: sent " + text(control.getEnd()) + ", arrived " + text(arrived), null);
      }
      ended = true;
    }
  }

  private static String text(Totals totals) {
    return totals.getBlocks() + " blocks, " + totals.getBytes() + " bytes, digest "
        + Integer.toHexString(totals.getDigest());
  }

  boolean ended() {
    return ended;
  }

  /** What became of each wanted block, in their order; call once, after the end. */
  List<Outcome> outcomes() throws IOException {
    List<Outcome> outcomes = new ArrayList<>(wanted.size());
    for (int i = 0; i < sinks.length; i++) {
      FlightException failure = failure(wanted.get(i), sinks[i]);
      if (failure == null) {
        outcomes.add(new Outcome(wanted.get(i), sinks[i].finish(), null));
      } else {
        outcomes.add(new Outcome(wanted.get(i), null, failure));
        if (sinks[i] != null) {
          sinks[i].discard();
        }
      }
      sinks[i] = null;
    }
    return outcomes;
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
