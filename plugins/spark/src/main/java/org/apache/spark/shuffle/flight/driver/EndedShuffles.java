package org.apache.spark.shuffle.flight.driver;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.function.Predicate;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Shuffles that are over, on their way to the server. Spark's cleaner drops many at a time and nobody waits for it, so
 * those of a moment are reported together. Thread-safe.
 */
final class EndedShuffles {
  private static final Logger LOG = LoggerFactory.getLogger(EndedShuffles.class);
  private static final Duration MOMENT = Duration.ofMillis(200);
  private static final int AT_ONCE = 1000;

  /** Unregisters shuffles at the server. */
  interface Server {
    void unregister(List<ShuffleKey> shuffles) throws IOException;
  }

  private final Server server;
  private final ScheduledExecutorService timer;
  private final Duration pause;
  private final Object telling = new Object(); // held during a report to the server
  private List<ShuffleKey> ended = new ArrayList<>();
  private boolean scheduled;
  private long notBefore = System.nanoTime();

  /**
   * @param timer runs what is due later; may block
   * @param pause before the next report to a server that was away
   */
  EndedShuffles(Server server, ScheduledExecutorService timer, Duration pause) {
    this.server = server;
    this.timer = timer;
    this.pause = pause;
  }

  /** Has the server told soon. */
  synchronized void add(ShuffleKey shuffle) {
    ended.add(shuffle);
    schedule();
  }

  private synchronized void schedule() {
    if (scheduled) {
      return;
    }
    long delay = Math.max(MOMENT.toNanos(), notBefore - System.nanoTime());
    try {
      PeriodicTask.later(timer, Duration.ofNanos(delay), "unregistering shuffles", this::tellWhenDue);
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

  private synchronized void again(List<ShuffleKey> rest) {
    ended.addAll(rest);
    notBefore = System.nanoTime() + pause.toNanos();
    schedule();
  }

  /** All those of {@code which} that are still to be told, taken out. */
  private synchronized List<ShuffleKey> take(Predicate<ShuffleKey> which) {
    List<ShuffleKey> taken = ended.stream().filter(which).toList();
    ended = new ArrayList<>(ended.stream().filter(which.negate()).toList());
    return taken;
  }

  /**
   * Reports the end of a shuffle to the server now, unless that was done: before its number is registered anew.
   *
   * @throws IOException the server cannot be reached; the end is reported later
   */
  void tell(int shuffle) throws IOException {
    tell(key -> key.getShuffle() == shuffle);
  }

  /** Reports all to the server now; while it is away, again later. It drops the others with the application. */
  void tell() {
    try {
      tell(key -> true);
    } catch (IOException e) {
      LOG.info("{}; the end of shuffles is reported again in {} s", e.getMessage(), pause.toSeconds());
    }
  }

  private void tell(Predicate<ShuffleKey> which) throws IOException {
    synchronized (telling) {
      List<ShuffleKey> all = take(which);
      int done = 0;
      try {
        while (done < all.size()) {
          List<ShuffleKey> some = all.subList(done, Math.min(done + AT_ONCE, all.size()));
          unregister(some);
          done += some.size();
        }
      } finally {
        if (done < all.size()) {
          again(all.subList(done, all.size()));
        }
      }
    }
  }

  private void unregister(List<ShuffleKey> some) throws IOException {
    try {
      server.unregister(some);
    } catch (IOException e) {
      if (isAway(e)) {
        throw e;
      }
      LOG.info("could not unregister {} shuffles: {}", some.size(), e.getMessage()); // the server has them no more
    }
  }

  private static boolean isAway(IOException why) {
    return why instanceof InterruptedIOException || (why instanceof FlightException failure && failure.passing());
  }
}
