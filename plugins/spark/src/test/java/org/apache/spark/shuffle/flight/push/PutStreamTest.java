package org.apache.spark.shuffle.flight.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.PutReply;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class PutStreamTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final MapAttempt OUTPUT = MapAttempt.newBuilder().setMap(3).setAttempt(1).build();
  private static final Totals TOTALS = new BlockTotals().toMessage();

  private static PutStream open(FakeWorker worker) throws IOException {
    return PutStream.open(
        worker.connections().channel(worker.address()), worker.address(), PutCommand.newBuilder().setOutput(OUTPUT), LONG,
        LONG, () -> { });
  }

  private static FakeWorker answering(MapAttempt output, Totals totals) throws IOException {
    Committed committed = Committed.newBuilder().setOutput(output).setTotals(totals).build();
    return new FakeWorker(call -> List.of(FakeWorker.result(PutReply.newBuilder().setCommitted(committed).build())));
  }

  @Test
  void malformedReplyIsTheReasonThatSendersHear() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> List.of(FakeWorker.result(new byte[] {-1})))) {
      PutStream stream = open(worker);
      FlightException failure =
          assertThrows(
              FlightException.class,
              () -> {
                while (true) {
                  BlockBatch batch = new BlockBatch(8);
                  batch.append(new byte[1], 0, 1);
                  batch.endBlock(0, new BlockTotals());
                  stream.send(batch, 0);
                  Thread.sleep(1);
                }
              });
      assertTrue(failure.getMessage().contains("malformed reply"), failure.getMessage());
      failure = assertThrows(FlightException.class, () -> stream.commit(TOTALS));
      assertTrue(failure.getMessage().contains("malformed reply"), failure.getMessage());
      stream.abort();
    }
  }

  @Test
  void answerThatRepeatsTheStatementIsTaken() throws Exception {
    try (FakeWorker worker = answering(OUTPUT, TOTALS)) {
      assertEquals(OUTPUT, open(worker).commit(TOTALS).getOutput());
    }
  }

  @Test
  void anotherAttemptMayHaveWonTheMapButIsNotRelayed() throws Exception {
    MapAttempt winner = OUTPUT.toBuilder().setAttempt(0).build();
    try (FakeWorker worker = answering(winner, TOTALS.toBuilder().setBlocks(9).build())) {
      assertEquals(winner, open(worker).commit(TOTALS).getOutput());
      PutStream relay = open(worker);
      relay.end(TOTALS, List.of());
      FlightException failure = assertThrows(FlightException.class, () -> relay.awaitRelayed(TOTALS));
      assertEquals(ErrorCode.ATTEMPT_SUPERSEDED, failure.code());
    }
  }

  @Test
  void answerWithOtherTotalsIsRefused() throws Exception {
    try (FakeWorker worker = answering(OUTPUT, TOTALS.toBuilder().setBlocks(9).build())) {
      FlightException failure = assertThrows(FlightException.class, () -> open(worker).commit(TOTALS));
      assertEquals(ErrorCode.COMMIT_MISMATCH, failure.code());
      assertTrue(failure.getMessage().contains("9 blocks"), failure.getMessage());
    }
  }

  @Test
  void answerAboutAnotherMapIsRefused() throws Exception {
    try (FakeWorker worker = answering(OUTPUT.toBuilder().setMap(4).build(), TOTALS)) {
      FlightException failure = assertThrows(FlightException.class, () -> open(worker).commit(TOTALS));
      assertEquals(ErrorCode.PROTOCOL_MISMATCH, failure.code());
    }
  }
}
