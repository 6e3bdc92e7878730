package org.apache.spark.shuffle.flight.client;

import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * The waits between the tries of one operation: each about twice as long as the one before, drawn at random, so that those who
 * failed together do not come back together; until a window closes. Not thread-safe.
 */
public final class Backoff {
  private static final Duration FIRST = Duration.ofMillis(100);
  private static final Duration LONGEST = Duration.ofSeconds(2);

  private final long longest;
  private final long giveUp;
  private long next;

  /** @param window how long the operation is tried, from now on */
  public Backoff(Duration window) {
    this(FIRST, LONGEST, window);
  }

  Backoff(Duration first, Duration longest, Duration window) {
    this.next = first.toNanos();
    this.longest = longest.toNanos();
    this.giveUp = System.nanoTime() + window.toNanos();
  }

  /** Whether another try begins before the window closes. */
  public boolean mayGoOn() {
    return left() > next;
  }

  /** Nanoseconds until the window closes; not positive if it has. */
  long left() {
    return giveUp - System.nanoTime();
  }

  /** Nanoseconds to wait before the next try: half of what the turn allows at least. */
  public long nextNanos() {
    long drawn = ThreadLocalRandom.current().nextLong(next / 2, next + 1);
    next = Math.min(2 * next, longest);
    return drawn;
  }

  /**
   * Waits before the next try.
   *
   * @param doing what is tried again, for the message
   * @throws InterruptedIOException when the thread is interrupted, which it is afterwards, too
   */
  public void pause(String doing) throws InterruptedIOException {
    try {
      TimeUnit.NANOSECONDS.sleep(nextNanos());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while " + doing);
    }
  }
}
