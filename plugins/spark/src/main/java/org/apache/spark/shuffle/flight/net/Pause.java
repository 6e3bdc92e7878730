package org.apache.spark.shuffle.flight.net;

import java.io.InterruptedIOException;
import java.time.Duration;

/** The wait before something is tried again. */
public final class Pause {
  private Pause() {}

  /**
   * Waits.
   *
   * @param doing what is tried again, for the message
   * @throws InterruptedIOException when the thread is interrupted, which it is afterwards, too
   */
  public static void before(String doing, Duration time) throws InterruptedIOException {
    try {
      Thread.sleep(time.toMillis());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while " + doing);
    }
  }
}
