package org.apache.spark.shuffle.flight.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.local.FileIndexCache;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class InlinePushTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final MapAttempt OUTPUT = MapAttempt.newBuilder().setMap(3).build();
  private static final PutCommand COMMAND =
      PutCommand.newBuilder().setShuffle(ShuffleKey.newBuilder().setApp("app").setShuffle(7)).setOutput(OUTPUT).build();

  private final BlockTotals totals = new BlockTotals();
  private final BlockBatch batch = new BlockBatch(100);
  private final Committed right;

  InlinePushTest() {
    batch.append(new byte[] {1, 2, 3}, 0, 3);
    batch.endBlock(5, totals);
    right = Committed.newBuilder().setOutput(OUTPUT).setWorker("w").setTotals(totals.toMessage()).build();
  }

  private static FakeWorker answering(byte[]... results) throws IOException {
    return new FakeWorker(call -> List.of(results));
  }

  private Committed put(FakeWorker worker, LocalFileAccess localFiles, Runnable killCheck) throws IOException {
    InlinePush push =
        new InlinePush(localFiles, COMMAND, tried -> tried.at(worker.address()), LONG, LONG, killCheck);
    push.send(batch, 0);
    return push.commit(totals.toMessage());
  }

  private LocalFileAccess wireOnly(FakeWorker worker) {
    return new LocalFileAccess(worker.connections(), false, LONG);
  }

  @Test
  void placeThatTheWorkerTellsIsKnownToReaders() throws Exception {
    Committed told = right.toBuilder().setPath("/data/3.out").build();
    try (FakeWorker worker = answering(FakeWorker.result(told))) {
      LocalFileAccess localFiles = wireOnly(worker);
      assertEquals(told, put(worker, localFiles, () -> { }));
      FileIndexCache.Known known = localFiles.files().find(COMMAND.getShuffle(), 3, "w");
      assertEquals("/data/3.out", known.path().toString());
      assertEquals(BlockBatch.INDEX_ROW_BYTES, known.index().between(5, 6).limit());
      assertEquals(0, known.index().between(0, 5).limit());
    }
  }

  @Test
  void placeOfAnotherAttemptIsNotTakenForThisOnes() throws Exception {
    Committed other = right.toBuilder().setOutput(OUTPUT.toBuilder().setAttempt(1)).setPath("/data/3.out").build();
    try (FakeWorker worker = answering(FakeWorker.result(other))) {
      LocalFileAccess localFiles = wireOnly(worker);
      assertEquals(1, put(worker, localFiles, () -> { }).getOutput().getAttempt());
      assertNull(localFiles.files().find(COMMAND.getShuffle(), 3, "w"));
    }
  }

  @Test
  void answerAboutOtherBlocksIsNone() throws Exception {
    Committed other = right.toBuilder().setTotals(new BlockTotals().toMessage()).build();
    try (FakeWorker worker = answering(FakeWorker.result(other))) {
      FlightException failure =
          assertThrows(
              FlightException.class, () -> put(worker, wireOnly(worker), () -> { }));
      assertTrue(failure.getMessage().contains("COMMIT_MISMATCH"), failure.getMessage());
    }
  }

  @Test
  void endWithoutAnAnswerMayBeRepeated() throws Exception {
    try (FakeWorker worker = answering()) {
      FlightException failure =
          assertThrows(
              FlightException.class, () -> put(worker, wireOnly(worker), () -> { }));
      assertTrue(failure.passing(), failure.getMessage());
    }
  }

  @Test
  void killedTaskDoesNotWaitForTheAnswer() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> null)) {
      Runnable killed =
          () -> {
            throw new IllegalStateException("killed");
          };
      IllegalStateException failure =
          assertThrows(
              IllegalStateException.class, () -> put(worker, wireOnly(worker), killed));
      assertNotNull(failure.getMessage());
    }
  }
}
