package org.apache.spark.shuffle.flight.push;

import java.io.IOException;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockBatch;

/** Where the blocks of one map output go: over the wire, or into a file. Used by one task thread. */
public interface BlockStream {
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
}
