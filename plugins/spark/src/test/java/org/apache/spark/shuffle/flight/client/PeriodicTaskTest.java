package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.apache.spark.SparkException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

@Timeout(60)
class PeriodicTaskTest {
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.of(() -> "test"));

  @AfterEach
  void stop() {
    timer.shutdownNow();
  }

  /** Of any kind, as Scala throws what its methods do not declare. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void raise(Throwable any) throws T {
    throw (T) any;
  }

  private static Stream<Throwable> ofAllKinds() {
    return Stream.of(
        new IllegalStateException("unexpected"), new SparkException("undeclared"), new AssertionError("wrong"),
        new NoClassDefFoundError("of a jar that was deleted"), new InternalError("of the JVM"),
        new RejectedExecutionException("stopped"));
  }

  @ParameterizedTest
  @MethodSource("ofAllKinds")
  void roundThatThrowsIsFollowedByTheNext(Throwable thrown) throws InterruptedException {
    CountDownLatch rounds = new CountDownLatch(3);
    PeriodicTask.every(
        timer, Duration.ofMillis(1), "a test",
        () -> {
          rounds.countDown();
          raise(thrown);
        });
    assertTrue(rounds.await(30, TimeUnit.SECONDS));
  }

  @ParameterizedTest
  @MethodSource("ofAllKinds")
  void whatIsThrownIsHandedOverOnce(Throwable thrown) {
    List<Throwable> failures = new ArrayList<>();
    PeriodicTask.guarded("a test", () -> {}, failures::add).run();
    PeriodicTask.guarded("a test", () -> raise(thrown), failures::add).run();
    PeriodicTask.start(Runnable::run, "a test", () -> raise(thrown), failures::add);
    assertEquals(List.of(thrown, thrown), failures);
  }

  @ParameterizedTest
  @MethodSource("ofAllKinds")
  void whyNoThreadTakesATaskIsHandedOver(Throwable thrown) {
    List<Throwable> failures = new ArrayList<>();
    PeriodicTask.start(task -> raise(thrown), "a test", () -> {}, failures::add);
    assertEquals(List.of(thrown), failures);
  }

  @Test
  void whoeverIsHandedWhatWasThrownMayThrowAsWell() {
    RuntimeException first = new IllegalStateException("first");
    AssertionError second = new AssertionError("second");
    PeriodicTask.guarded("a test", () -> { throw first; }, error -> { throw second; }).run();
    PeriodicTask.guarded("a test", () -> { throw first; }, PeriodicTaskTest::raise).run();
    assertEquals(List.of(second), List.of(first.getSuppressed()));
  }

  @Test
  void errorOfTheJvmIsSparksAndTheNextRoundIsDueAllTheSame() throws InterruptedException {
    Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
    CountDownLatch fatal = new CountDownLatch(2);
    Thread.setDefaultUncaughtExceptionHandler(
        (thread, error) -> {
          fatal.countDown();
          throw new OutOfMemoryError("nor is there any to report it");
        });
    try {
      PeriodicTask.every(timer, Duration.ofMillis(1), "a test", () -> { throw new OutOfMemoryError("of a test"); });
      assertTrue(fatal.await(30, TimeUnit.SECONDS));
    } finally {
      timer.shutdownNow();
      timer.awaitTermination(30, TimeUnit.SECONDS);
      Thread.setDefaultUncaughtExceptionHandler(before);
    }
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
