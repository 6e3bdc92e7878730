package org.apache.spark.shuffle.flight.client;

import java.lang.Thread.UncaughtExceptionHandler;
import java.util.concurrent.ThreadFactory;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Threads that neither keep a JVM alive nor end it: a driver or an executor ends when Spark ends it. What nobody catches on one
 * of them is logged; Spark's own handler, which exits an executor, is for the JVM's errors only.
 */
public final class DaemonThreads {
  private static final Logger LOG = LoggerFactory.getLogger(DaemonThreads.class);

  private DaemonThreads() {}

  /** @param name asked for each thread */
  public static ThreadFactory of(Supplier<String> name) {
    return task -> {
      Thread thread = new Thread(task, name.get());
      thread.setDaemon(true);
      thread.setUncaughtExceptionHandler(DaemonThreads::uncaught);
      return thread;
    };
  }

  private static void uncaught(Thread thread, Throwable error) {
    UncaughtExceptionHandler spark = Thread.getDefaultUncaughtExceptionHandler();
    if (error instanceof VirtualMachineError && spark != null) {
      spark.uncaughtException(thread, error);
    } else {
      LOG.error("what {} did has failed: please report this", thread.getName(), error);
    }
  }
}
