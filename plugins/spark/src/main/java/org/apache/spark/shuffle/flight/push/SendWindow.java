package org.apache.spark.shuffle.flight.push;

/**
 * The credit of one push stream in bytes: pure arithmetic, no lock, no clock (docs/protocol.md, Push 3).
 *
 * <p>A value: each change gives a new one. {@link CreditGate} is what waits on it.
 *
 * @param granted payload bytes that may have been sent on this stream, cumulative; never falls
 * @param sent payload bytes that have been sent
 * @param window the largest {@code granted - sent} seen: how much the receiver lets be on the way at once
 */
record SendWindow(long granted, long sent, long window) {
  /** What may be sent before the receiver has said anything. */
  static final long INITIAL_CREDIT = 1 << 20;

  /** The window of a stream that begins. */
  static SendWindow initial() {
    return new SendWindow(INITIAL_CREDIT, 0, INITIAL_CREDIT);
  }

  /** Bytes that may be sent now. */
  long available() {
    return granted - sent;
  }

  /**
   * Whether a message of {@code bytes} may be sent now. One that is larger than the whole window may go when nothing is
   * outstanding: it passes alone, and can never wait for ever.
   */
  boolean admits(long bytes) {
    return bytes <= available() || (bytes > window && available() >= window);
  }

  /** The window after {@code bytes} were sent. */
  SendWindow afterSending(long bytes) {
    return new SendWindow(granted, Math.addExact(sent, bytes), window);
  }

  /** The window after the receiver stated its cumulative grant; a statement that arrives late changes nothing. */
  SendWindow afterGrant(long total) {
    long raised = Math.max(granted, total);
    return new SendWindow(raised, sent, Math.max(window, raised - sent));
  }
}
