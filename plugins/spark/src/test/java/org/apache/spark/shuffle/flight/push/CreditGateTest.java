package org.apache.spark.shuffle.flight.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class CreditGateTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final long WINDOW = SendWindow.INITIAL_CREDIT;

  private final CreditGate gate = new CreditGate("worker w", () -> { });

  @Test
  void grantWakesTheSender() throws Exception {
    gate.take(WINDOW, LONG);
    assertFalse(gate.admits(1));
    CompletableFuture<Void> granter = CompletableFuture.runAsync(() -> gate.granted(2 * WINDOW));
    gate.take(WINDOW, LONG);
    granter.get();
    assertFalse(gate.admits(1));
  }

  @Test
  void waitForCreditIsCounted() throws IOException {
    CreditGate[] own = new CreditGate[1];
    own[0] = new CreditGate("worker w", () -> own[0].granted(2 * WINDOW)); // asked in a wait only
    own[0].take(WINDOW, LONG);
    assertEquals(0, own[0].creditWaitNanos());
    own[0].take(WINDOW, LONG);
    assertTrue(own[0].creditWaitNanos() > 0);
  }

  @Test
  void silenceEndsTheWaitWithAnErrorThatNamesTheWorker() throws IOException {
    gate.take(WINDOW, LONG);
    FlightException failure = assertThrows(FlightException.class, () -> gate.take(1, Duration.ofMillis(20)));
    assertTrue(failure.getMessage().contains("worker w"), failure.getMessage());
    assertTrue(failure.passing());
  }

  @Test
  void firstReasonOfTheEndCounts() {
    FlightException refusal = FlightException.broken("worker w", "refused", null);
    gate.ended(refusal);
    gate.ended(FlightException.broken("worker w", "closed afterwards", null));
    assertSame(refusal, assertThrows(FlightException.class, () -> gate.awaitCommitted(LONG)));
  }

  @Test
  void answerThatCameBeforeTheEndCounts() throws IOException {
    Committed answer = Committed.newBuilder().setWorker("w").build();
    gate.committed(answer);
    gate.ended(FlightException.broken("worker w", "closed", null));
    assertEquals(answer, gate.awaitCommitted(LONG));
  }

  @Test
  void interruptionSurfacesAsInterruption() {
    Thread.currentThread().interrupt();
    assertThrows(InterruptedIOException.class, () -> gate.awaitConnected(LONG));
    assertTrue(Thread.interrupted());
  }

  @Test
  void killedTaskLeavesTheWait() {
    CreditGate killed = new CreditGate("worker w", () -> { throw new IllegalStateException("killed"); });
    assertThrows(IllegalStateException.class, () -> killed.awaitConnected(LONG));
  }
}
