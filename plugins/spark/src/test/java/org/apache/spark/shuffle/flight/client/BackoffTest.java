package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

class BackoffTest {
  private static final Duration FIRST = Duration.ofMillis(100);
  private static final Duration LONGEST = Duration.ofSeconds(2);
  private static final Duration HOUR = Duration.ofHours(1);

  @Test
  void pausesDoubleUpToTheLongestAndAreDrawn() {
    Set<Long> firsts = new HashSet<>();
    for (int i = 0; i < 100; i++) {
      Backoff backoff = new Backoff(FIRST, LONGEST, HOUR);
      long turn = FIRST.toNanos();
      for (int turns = 0; turns < 10; turns++) {
        long pause = backoff.nextNanos();
        assertTrue(pause >= turn / 2 && pause <= turn, pause + " of " + turn);
        if (turns == 0) {
          firsts.add(pause);
        }
        turn = Math.min(2 * turn, LONGEST.toNanos());
      }
    }
    assertTrue(firsts.size() > 1, "all the same");
  }

  @Test
  void nothingIsTriedThatWouldBeginBehindTheWindow() {
    assertTrue(new Backoff(FIRST, LONGEST, HOUR).mayGoOn());
    assertFalse(new Backoff(FIRST, LONGEST, FIRST).mayGoOn());
    assertFalse(new Backoff(FIRST, LONGEST, Duration.ZERO).mayGoOn());
  }

  @Test
  void interruptedPauseLeavesTheThreadInterrupted() {
    Thread.currentThread().interrupt();
    InterruptedIOException end =
        assertThrows(InterruptedIOException.class, () -> new Backoff(HOUR, HOUR, HOUR).pause("waiting for a test"));
    assertEquals("interrupted while waiting for a test", end.getMessage());
    assertTrue(Thread.interrupted());
  }
}
