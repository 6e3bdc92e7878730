package org.apache.spark.shuffle.flight.driver;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import org.apache.spark.shuffle.flight.client.Backoff;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.conf.FallbackPolicy;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One shuffle in the server's registry, or on its way there. The server is asked when this is made, and whoever needs to know
 * what has come of it waits: the driver plans on until then. A shuffle that the server has dropped, or Spark has cleaned, is
 * registered anew when it is wanted again. Thread-safe.
 */
public final class ShuffleRegistration {
  private static final Logger LOG = LoggerFactory.getLogger(ShuffleRegistration.class);

  /**
   * What the server has.
   *
   * @param key with the generation
   * @param relays the workers that share the partitions of the shuffle if it is pipelined, else none
   */
  public record Registered(ShuffleKey key, List<WorkerAddress> relays) {}

  /** The server's answer to one question. */
  interface Answer {
    /** Blocks. */
    Registered await() throws IOException;
  }

  private final AppRegistration app;
  private final FlightConf conf;
  private final int shuffle;
  private final Function<ShuffleRegistration, Answer> question;
  private volatile boolean forgotten; // by the server
  private String fallback = "";
  private Answer asked; // null: the server is to be asked again
  private Optional<Registered> settled; // null: not yet

  /**
   * Asks, unless the server is known to be out of use.
   *
   * @param question asks the server to register the shuffle; does not block
   */
  ShuffleRegistration(
      AppRegistration app, FlightConf conf, int shuffle, Function<ShuffleRegistration, Answer> question) {
    this.app = app;
    this.conf = conf;
    this.shuffle = shuffle;
    this.question = question;
    this.asked = app.isUsable() ? question.apply(this) : null;
  }

  /** Whether the server was asked. If not, all that is left may take long. */
  synchronized boolean wasAsked() {
    return asked != null;
  }

  /** Why it has fallen back, if it has. */
  synchronized String fallback() {
    return fallback;
  }

  /** The server has it no more: it is registered anew when it is waited for, unless it has fallen back. Does not block. */
  void forget() {
    forgotten = true;
  }

  /**
   * Blocks until it is settled; again is a no-op, but for a shuffle that was forgotten.
   *
   * @return empty when the shuffle falls back, for good
   * @throws UncheckedIOException when the server does not take it, for as long as the retry window, and the policy is {@code
   *     never}; or when the caller is interrupted, who does not want the shuffle any more. The next caller finds out anew.
   */
  synchronized Optional<Registered> await() {
    app.settleDoubts();
    if (forgotten && (settled == null || settled.isPresent())) {
      asked = null;
      settled = null;
    }
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
      if (settled.isEmpty()) {
        fallback = app.outOfUse();
      }
    }
    return settled;
  }

  /**
   * Empty while the server is known to be out of use; the shuffles to come find it so when it does not take this one. One that
   * has only dropped the application gets it again.
   */
  private Optional<Registered> tryOnce() throws IOException {
    if (asked == null && !app.isUsable()) {
      return Optional.empty();
    }
    try {
      try {
        return Optional.of(answer());
      } catch (FlightException e) {
        if (!e.appIsGone()) {
          throw e;
        }
        asked = null;
        app.unusable(e);
        app.reach();
        return Optional.of(answer());
      }
    } catch (FlightException e) {
      app.unusable(e);
      throw e;
    }
  }

  /** While the server is out of use it is tried again, until the retry window closes. */
  private Registered insist() throws IOException {
    Backoff backoff = new Backoff(conf.retryWindow());
    while (true) {
      try {
        if (asked == null && !app.isUsable()) {
          app.reach();
        }
        return answer();
      } catch (FlightException e) {
        asked = null;
        app.unusable(e);
        if (app.isClosed() || (!e.passing() && !e.appIsGone())) {
          throw e;
        }
        if (!backoff.mayGoOn()) {
          String tried = "; tried for " + conf.retryWindow().toSeconds() + " s (" + FlightConf.RETRY_WINDOW.key() + ")";
          throw new IOException(e.getMessage() + tried, e);
        }
        LOG.info("{}; registering shuffle {} again", e.getMessage(), shuffle);
      }
      backoff.pause("registering shuffle " + shuffle);
    }
  }

  private Registered answer() throws IOException {
    if (asked == null) {
      forgotten = false;
      app.tellEnd(shuffle); // or the server takes this one for the one that is over
      asked = question.apply(this);
    }
    return asked.await();
  }
}
