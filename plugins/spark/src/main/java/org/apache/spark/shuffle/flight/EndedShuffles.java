package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Shuffles that are over, on their way to the server. Spark's cleaner drops many at a time and nobody waits for it, so those of
 * a moment are told together. Thread-safe.
 */
final class EndedShuffles {
  private static final Logger LOG = LoggerFactory.getLogger(EndedShuffles.class);
  private static final int MOMENT_MILLIS = 200;
  private static final int AT_ONCE = 1000;

  /** What tells the server. */
  interface Server {
    void unregister(List<Integer> shuffles) throws IOException;
  }

  private final Server server;
  private final ScheduledExecutorService timer;
  private List<Integer> ended = new ArrayList<>();

  /** @param timer runs what is due later; may block */
  EndedShuffles(Server server, ScheduledExecutorService timer) {
    this.server = server;
    this.timer = timer;
  }

  /** Has the server told soon. */
  synchronized void add(int shuffle) {
    ended.add(shuffle);
    if (ended.size() == 1) {
      try {
        timer.schedule(this::tell, MOMENT_MILLIS, TimeUnit.MILLISECONDS);
      } catch (RejectedExecutionException e) {
        LOG.debug("the application ends, and all of its shuffles with it");
      }
    }
  }

  /** Tells the server of all, now. What it does not hear of it drops with the application. */
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
        LOG.info("could not unregister {} shuffles: {}", some.size(), e.getMessage());
      }
    }
  }
}
