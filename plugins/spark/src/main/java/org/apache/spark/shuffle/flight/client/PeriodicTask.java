package org.apache.spark.shuffle.flight.client;

import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Work on a thread of the plugin: done once, later, or again and again. An exception that ends it early is logged and
 * given to a consumer, and the next round is due all the same: a timer silently drops a task that throws, and then
 * nothing answers those that wait for it.
 *
 * <p>No other class starts such work, or catches exceptions of any kind. They must be of any: Scala throws checked ones
 * that no method declares, and an assertion that fails is an {@code Error}.
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
    return timer.scheduleWithFixedDelay(guarded(what, round), nanos, nanos, TimeUnit.NANOSECONDS);
  }

  /**
   * Has a task done after a pause.
   *
   * @param failed receives an exception of the task
   * @throws RejectedExecutionException when {@code timer} is stopped
   */
  public static ScheduledFuture<?> later(
      ScheduledExecutorService timer, Duration pause, String what, Runnable task, Consumer<Throwable> failed) {
    return timer.schedule(guarded(what, task, failed), pause.toNanos(), TimeUnit.NANOSECONDS);
  }

  /** As {@link #later}; exceptions of the task are logged. */
  public static void later(ScheduledExecutorService timer, Duration pause, String what, Runnable task) {
    later(timer, pause, what, task, error -> {});
  }

  /**
   * Has a task done soon. Throws nothing.
   *
   * @param failed receives an exception of the task, or that of an {@code executor} which does not run it
   */
  public static void start(Executor executor, String what, Runnable task, Consumer<Throwable> failed) {
    guarded(what, () -> executor.execute(guarded(what, task, failed)), failed).run();
  }

  /** As {@link #start}; exceptions of the task are logged. */
  public static void start(Executor executor, String what, Runnable task) {
    start(executor, what, task, error -> {});
  }

  /** {@code task}, whose exceptions are logged and given to {@code failed}, and not thrown. */
  public static Runnable guarded(String what, Runnable task, Consumer<Throwable> failed) {
    return new PeriodicTask(what, task, failed);
  }

  /** {@code task}, whose exceptions are logged and not thrown. */
  public static Runnable guarded(String what, Runnable task) {
    return guarded(what, task, error -> {});
  }

  @Override
  public void run() {
    try {
      round.run();
      failing = false;
    } catch (Throwable e) {
      ended(e);
    }
  }

  private void ended(Throwable e) {
    try {
      failed.accept(e); // first: the report may end the JVM, or wait for its end
    } catch (Throwable another) {
      if (another != e) {
        e.addSuppressed(another);
      }
    }
    try {
      report(e);
    } catch (Throwable another) {
      return; // there is not even the memory to log it with: the next round is due all the same
    }
  }

  private void report(Throwable e) {
    Thread thread = Thread.currentThread();
    if (e instanceof VirtualMachineError) {
      thread.getUncaughtExceptionHandler().uncaughtException(thread, e); // Spark's exits an executor
    } else if (e instanceof RejectedExecutionException) {
      LOG.debug("{} is left, this process stops: {}", what, e.getMessage());
    } else if (!failing) {
      LOG.error("{} failed: please report this", what, e);
    }
    failing = true;
  }
}
