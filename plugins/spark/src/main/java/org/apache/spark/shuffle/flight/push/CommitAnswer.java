package org.apache.spark.shuffle.flight.push;

import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.Totals;

/** Holds a worker's answer to a commit against what was stated (docs/protocol.md, Push: After a failure). */
final class CommitAnswer {
  private CommitAnswer() {}

  /**
   * Returns {@code answer}: the attempt that won the map, which need not be this one.
   *
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
