package org.apache.spark.shuffle.flight.net;

import java.util.concurrent.ThreadFactory;
import java.util.function.Supplier;

/** Threads that do not keep a JVM alive: a driver or an executor ends when Spark ends it. */
public final class DaemonThreads {
  private DaemonThreads() {}

  /** @param name asked for each thread */
  public static ThreadFactory of(Supplier<String> name) {
    return task -> {
      Thread thread = new Thread(task, name.get());
      thread.setDaemon(true);
      return thread;
    };
  }
}
