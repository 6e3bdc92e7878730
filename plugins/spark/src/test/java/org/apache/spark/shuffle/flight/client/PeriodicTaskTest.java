package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class PeriodicTaskTest {
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.of(() -> "test"));

  @AfterEach
  void stop() {
    timer.shutdownNow();
  }

  @Test
  void roundThatThrowsIsFollowedByTheNext() throws InterruptedException {
    CountDownLatch rounds = new CountDownLatch(5);
    PeriodicTask.every(
        timer, Duration.ofMillis(1), "a test",
        () -> {
          rounds.countDown();
          throw rounds.getCount() % 2 == 0 ? new IllegalStateException("round") : new UnsupportedOperationException();
        });
    assertTrue(rounds.await(30, TimeUnit.SECONDS));
  }

  @Test
  void whatIsThrownIsHandedOverAndErrorsOfTheJvmAreNot() {
    List<Throwable> failures = new ArrayList<>();
    RuntimeException unexpected = new IllegalStateException("unexpected");
    LinkageError gone = new NoClassDefFoundError("of a jar that was deleted");
    PeriodicTask.guarded("a test", () -> {}, failures::add).run();
    PeriodicTask.guarded("a test", () -> { throw unexpected; }, failures::add).run();
    PeriodicTask.guarded("a test", () -> { throw gone; }, failures::add).run();
    assertEquals(List.of(unexpected, gone), failures);
    Runnable memory = PeriodicTask.guarded("a test", () -> { throw new OutOfMemoryError(); }, failures::add);
    assertThrows(OutOfMemoryError.class, memory::run);
  }

  @Test
  void threadThatEndsUnexpectedlyDoesNotEndTheExecutor() throws InterruptedException {
    Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
    AtomicReference<Throwable> fatal = new AtomicReference<>();
    Thread.setDefaultUncaughtExceptionHandler((thread, error) -> fatal.set(error)); // as Spark's, which exits
    try {
      run(() -> { throw new IllegalStateException("unexpected"); });
      assertEquals(null, fatal.get());
      run(() -> { throw new OutOfMemoryError("of a test"); });
      assertEquals("of a test", fatal.get().getMessage());
    } finally {
      Thread.setDefaultUncaughtExceptionHandler(before);
    }
  }

  private static void run(Runnable task) throws InterruptedException {
    Thread thread = DaemonThreads.of(() -> "test").newThread(task);
    thread.start();
    thread.join();
    assertFalse(thread.isAlive());
  }
}
