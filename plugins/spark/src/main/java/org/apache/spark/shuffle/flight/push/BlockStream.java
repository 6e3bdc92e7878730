package org.apache.spark.shuffle.flight.push;

import java.io.IOException;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockBatch;

/** Where the blocks of one map output go: over the wire, or into a file. Used by one task thread. */
interface BlockStream {
  /**
   * Takes the closed blocks of {@code batch}; when it returns, the batch may be filled again.
   *
   * @param backlog payload bytes that wait behind this batch, as far as the sender knows
   */
  void send(BlockBatch batch, long backlog) throws IOException;

  /** States that this was all, and waits for the worker to agree and to make the output visible. */
  Committed commit(Totals totals) throws IOException;

  /** How long it has waited for leave to send. */
  default long creditWaitNanos() {
    return 0;
  }

  /** Gives the output up, without waiting for the worker. */
  void abort();

  /**
   * Holds a worker's answer to a commit against what was stated (docs/protocol.md, Push: After a failure).
   *
   * @return {@code answer}: the attempt that won the map, which need not be this one
   * @throws FlightException it names another map, or this attempt with other blocks
   */
  static Committed checked(String peer, MapAttempt output, Totals stated, Committed answer) throws FlightException {
    if (answer.getOutput().getMap() != output.getMap()) {
      throw FlightException.found(
          peer, ErrorCode.PROTOCOL_MISMATCH,
          "the answer to a commit of map " + output.getMap() + " speaks of map " + answer.getOutput().getMap());
    }
    if (answer.getOutput().equals(output) && !answer.getTotals().equals(stated)) {
      throw FlightException.found(
          peer, ErrorCode.COMMIT_MISMATCH,
          "committed of map " + output.getMap() + " are " + text(answer.getTotals()) + ", stated were " + text(stated));
    }
    return answer;
  }

  private static String text(Totals totals) {
    return totals.getBlocks() + " blocks of " + totals.getBytes() + " bytes, digest " + Integer.toHexString(totals.getDigest());
  }
}
