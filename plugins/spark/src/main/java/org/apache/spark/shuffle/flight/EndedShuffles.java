package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.net.FlightException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Shuffles that are over, on their way to the server. Spark's cleaner drops many at a time and nobody waits for it, so those of
 * a moment are told together. Thread-safe.
 */
final class EndedShuffles {
  private static final Logger LOG = LoggerFactory.getLogger(EndedShuffles.class);
  private static final Duration MOMENT = Duration.ofMillis(200);
  private static final int AT_ONCE = 1000;

  /** What tells the server. */
  interface Server {
    void unregister(List<Integer> shuffles) throws IOException;
  }

  private final Server server;
  private final ScheduledExecutorService timer;
  private final Duration pause;
  private List<Integer> ended = new ArrayList<>();
  private boolean scheduled;
  private long notBefore = System.nanoTime();

  /**
   * @param timer runs what is due later; may block
   * @param pause before a server that was away is told again
   */
  EndedShuffles(Server server, ScheduledExecutorService timer, Duration pause) {
    this.server = server;
    this.timer = timer;
    this.pause = pause;
  }

  /** Has the server told soon. */
  synchronized void add(int shuffle) {
    ended.add(shuffle);
    schedule();
  }

  private synchronized void schedule() {
    if (scheduled) {
      return;
    }
    long delay = Math.max(MOMENT.toNanos(), notBefore - System.nanoTime());
    try {
      timer.schedule(this::tellWhenDue, delay, TimeUnit.NANOSECONDS);
      scheduled = true;
    } catch (RejectedExecutionException e) {
      LOG.debug("the application ends, and all of its shuffles with it");
    }
  }

  private void tellWhenDue() {
    synchronized (this) {
      scheduled = false;
      if (notBefore - System.nanoTime() > 0) { // the server was found to be away meanwhile
        schedule();
        return;
      }
    }
    tell();
  }

  private synchronized void again(List<Integer> rest) {
    ended.addAll(rest);
    notBefore = System.nanoTime() + pause.toNanos();
    schedule();
  }

  /** Tells the server of all, now; while it is away, again later. What it never hears of it drops with the application. */
  void tell() {
    List<Integer> all;
    synchronized (this) {
      all = ended;
      ended = new ArrayList<>();
    }
    for (int start = 0; start < all.size(); start += AT_ONCE) {
      List<Integer> some = all.subList(start, Math.min(start + AT_ONCE, all.size()));
      try {
        server.unregister(some);
      } catch (IOException e) {
        if (e instanceof InterruptedIOException || (e instanceof FlightException failure && failure.passing())) {
          List<Integer> rest = all.subList(start, all.size());
          LOG.info("{}; unregistering {} shuffles again in {} s", e.getMessage(), rest.size(), pause.toSeconds());
          again(rest);
          return;
        }
        LOG.info("could not unregister {} shuffles: {}", some.size(), e.getMessage());
      }
    }
  }
}
