package org.apache.spark.shuffle.flight.client;

import java.time.Duration;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Work that is done again and again, or later, on a timer's thread. An exception that ends a round is logged, and the next round
 * is due all the same: a timer silently drops a task after an exception. The one place that catches exceptions of any kind.
 */
public final class PeriodicTask implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(PeriodicTask.class);

  private final String what;
  private final Runnable round;
  private final Consumer<Throwable> failed;
  private boolean failing;

  private PeriodicTask(String what, Runnable round, Consumer<Throwable> failed) {
    this.what = what;
    this.round = round;
    this.failed = failed;
  }

  /**
   * Has a round done again and again, a pause after the one before.
   *
   * @param what it does, for the log
   */
  public static ScheduledFuture<?> every(ScheduledExecutorService timer, Duration pause, String what, Runnable round) {
    long nanos = pause.toNanos();
    return timer.scheduleWithFixedDelay(new PeriodicTask(what, round, error -> {}), nanos, nanos, TimeUnit.NANOSECONDS);
  }

  /**
   * {@code round}, for a timer or an executor that runs it later.
   *
   * @param failed receives the exception of a round, which is logged as well
   */
  public static Runnable guarded(String what, Runnable round, Consumer<Throwable> failed) {
    return new PeriodicTask(what, round, failed);
  }

  /** {@code round}, for a timer or an executor that runs it later; its exceptions are logged. */
  public static Runnable guarded(String what, Runnable round) {
    return new PeriodicTask(what, round, error -> {});
  }

  @Override
  public void run() {
    try {
      round.run();
      failing = false;
    } catch (RuntimeException | LinkageError e) { // a LinkageError: the jar of an executor that is shutting down is gone
      if (!failing) {
        LOG.error("{} failed: please report this", what, e);
      }
      failing = true;
      failed.accept(e);
    }
  }
}
