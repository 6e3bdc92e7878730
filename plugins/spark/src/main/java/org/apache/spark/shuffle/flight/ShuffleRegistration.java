package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.shuffle.flight.net.FlightException;
import org.apache.spark.shuffle.flight.net.Pause;
import org.apache.spark.shuffle.flight.net.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One shuffle on its way into the server's registry. The server is asked when this is made, and whoever needs to know what has
 * come of it waits: the driver plans on until then. Thread-safe.
 */
final class ShuffleRegistration {
  private static final Logger LOG = LoggerFactory.getLogger(ShuffleRegistration.class);
  private static final Duration AGAIN = Duration.ofMillis(500);

  /** The server's answer to one question. */
  interface Answer {
    /** Blocks. A worker, the one to relay the shuffle if it is pipelined. */
    WorkerAddress await() throws IOException;
  }

  private final AppRegistration app;
  private final FlightConf conf;
  private final int shuffle;
  private final Supplier<Answer> question;
  private Answer asked; // null: the server is to be asked again
  private Optional<WorkerAddress> settled; // null: not yet

  /**
   * Asks, unless the server is known to be out of use.
   *
   * @param question asks the server to register the shuffle; does not block
   */
  ShuffleRegistration(AppRegistration app, FlightConf conf, int shuffle, Supplier<Answer> question) {
    this.app = app;
    this.conf = conf;
    this.shuffle = shuffle;
    this.question = question;
    this.asked = app.isUsable() ? question.get() : null;
  }

  /** Whether the server was asked. If not, all that is left may take long. */
  synchronized boolean wasAsked() {
    return asked != null;
  }

  /**
   * Blocks until it is settled; again is a no-op.
   *
   * @return a worker, the one to relay the shuffle if it is pipelined; empty when the shuffle falls back
   * @throws UncheckedIOException when the server does not take it, for as long as the retry window, and the policy is {@code
   *     never}; or when the caller is interrupted, who does not want the shuffle any more. The next caller finds out anew.
   */
  synchronized Optional<WorkerAddress> await() {
    if (settled == null) {
      boolean insist = conf.fallback() == FallbackPolicy.NEVER;
      try {
        settled = insist ? Optional.of(insist()) : tryOnce();
      } catch (IOException e) {
        asked = null;
        if (insist || e instanceof InterruptedIOException) { // an interrupt says nothing of the server
          throw new UncheckedIOException(e);
        }
        settled = Optional.empty();
      }
    }
    return settled;
  }

  /** Empty while the server is known to be out of use; the shuffles to come find it so when it does not take this one. */
  private Optional<WorkerAddress> tryOnce() throws IOException {
    if (asked == null && !app.isUsable()) {
      return Optional.empty();
    }
    try {
      return Optional.of(answer());
    } catch (FlightException e) {
      app.unusable(e);
      throw e;
    }
  }

  /** While the server is out of use it is tried again, until the retry window closes. */
  private WorkerAddress insist() throws IOException {
    long giveUp = System.nanoTime() + conf.retryWindow().toNanos();
    while (true) {
      try {
        if (asked == null && !app.isUsable()) {
          app.reach();
        }
        return answer();
      } catch (FlightException e) {
        asked = null;
        app.unusable(e);
        if (app.isClosed() || (!e.passing() && e.code() != ErrorCode.UNKNOWN_APP)) {
          throw e;
        }
        if (System.nanoTime() > giveUp) {
          String tried = "; tried for " + conf.retryWindow().toSeconds() + " s (" + FlightConf.RETRY_WINDOW.key() + ")";
          throw new IOException(e.getMessage() + tried, e);
        }
        LOG.info("{}; registering shuffle {} again", e.getMessage(), shuffle);
      }
      Pause.before("registering shuffle " + shuffle, AGAIN);
    }
  }

  private WorkerAddress answer() throws IOException {
    if (asked == null) {
      asked = question.get();
    }
    return asked.await();
  }
}
