package org.apache.spark.shuffle.flight.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class EndedShufflesTest {
  private static final Duration PAUSE = Duration.ofMillis(50);

  private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
  private final BlockingQueue<List<ShuffleKey>> told = new LinkedBlockingQueue<>();

  @AfterEach
  void stop() {
    timer.shutdownNow();
  }

  private static ShuffleKey key(int shuffle) {
    return ShuffleKey.newBuilder().setApp("app~1").setShuffle(shuffle).setGeneration(100 + shuffle).build();
  }

  @Test
  void endOfOneIsToldAtOnceAndOnlyOnce() throws Exception {
    EndedShuffles ended = new EndedShuffles(told::add, timer, Duration.ofHours(1));
    ended.add(key(1));
    ended.add(key(2));
    ended.tell(1);
    assertEquals(List.of(key(1)), told.poll());
    ended.tell(1);
    ended.tell(3);
    assertEquals(List.of(key(2)), told.poll(30, TimeUnit.SECONDS));
    assertTrue(told.isEmpty());
  }

  @Test
  void endThatCannotBeToldIsAnErrorAndToldLater() throws Exception {
    AtomicReference<IOException> once = new AtomicReference<>(FlightException.broken("server", "away", null));
    EndedShuffles ended = new EndedShuffles(failing(once), timer, PAUSE);
    ended.add(key(1));
    assertThrows(FlightException.class, () -> ended.tell(1));
    assertEquals(List.of(key(1)), told.poll(30, TimeUnit.SECONDS));
  }

  private EndedShuffles.Server failing(AtomicReference<IOException> once) {
    return shuffles -> {
      IOException now = once.getAndSet(null);
      if (now != null) {
        throw now;
      }
      told.add(shuffles);
    };
  }

  @Test
  void endIsToldLaterAfterWhatNobodyExpects() throws Exception {
    AtomicReference<AssertionError> once = new AtomicReference<>(new AssertionError("not expected"));
    EndedShuffles ended =
        new EndedShuffles(
            shuffles -> {
              AssertionError now = once.getAndSet(null);
              if (now != null) {
                throw now;
              }
              told.add(shuffles);
            },
            timer, PAUSE);
    ended.add(key(1));
    assertThrows(AssertionError.class, () -> ended.tell(1));
    assertEquals(List.of(key(1)), told.poll(30, TimeUnit.SECONDS));
  }

  @Test
  void allArriveOnceAndTheLastOnesToo() throws Exception {
    EndedShuffles ended = new EndedShuffles(told::add, timer, PAUSE);
    List<ShuffleKey> expected = new ArrayList<>();
    for (int shuffle = 0; shuffle < 2500; shuffle++) {
      ended.add(key(shuffle));
      expected.add(key(shuffle));
    }
    List<ShuffleKey> heard = new ArrayList<>();
    while (heard.size() < expected.size()) {
      List<ShuffleKey> some = told.poll(30, TimeUnit.SECONDS);
      assertTrue(some != null && some.size() <= 1000, "at most a thousand at once");
      heard.addAll(some);
    }
    assertEquals(expected, heard);
    ended.add(key(7));
    assertEquals(List.of(key(7)), told.poll(30, TimeUnit.SECONDS));
  }

  @Test
  void toldNowIsNotToldAgain() throws Exception {
    EndedShuffles ended = new EndedShuffles(told::add, timer, PAUSE);
    ended.add(key(1));
    ended.tell();
    assertEquals(List.of(key(1)), told.poll());
    ended.add(key(2));
    assertEquals(List.of(key(2)), told.poll(30, TimeUnit.SECONDS));
  }

  @Test
  void refusalDoesNotStopTheNext() throws Exception {
    EndedShuffles ended =
        new EndedShuffles(
            shuffles -> {
              told.add(shuffles);
              throw new IOException("not now");
            },
            timer, PAUSE);
    ended.add(key(1));
    assertEquals(List.of(key(1)), told.poll(30, TimeUnit.SECONDS));
    ended.add(key(2));
    assertEquals(List.of(key(2)), told.poll(30, TimeUnit.SECONDS));
  }

  @Test
  void serverThatIsAwayIsToldAgain() throws Exception {
    assertToldAgain(FlightException.broken("server", "away", null));
  }

  @Test
  void interruptedCallIsMadeAgain() throws Exception {
    assertToldAgain(new InterruptedIOException("interrupted"));
  }

  private void assertToldAgain(IOException failure) throws InterruptedException {
    AtomicReference<IOException> once = new AtomicReference<>(failure);
    EndedShuffles ended = new EndedShuffles(failing(once), timer, PAUSE);
    List<ShuffleKey> heard = new ArrayList<>();
    for (int shuffle = 1; shuffle <= 3; shuffle++) {
      ended.add(key(shuffle));
    }
    while (heard.size() < 3) {
      heard.addAll(told.poll(30, TimeUnit.SECONDS));
    }
    assertEquals(Set.of(key(1), key(2), key(3)), Set.copyOf(heard));
  }

  @Test
  void serverThatIsAwayIsLeftAloneForAPauseHoweverManyEnd() {
    ManualTimer later = new ManualTimer();
    AtomicInteger calls = new AtomicInteger();
    AtomicReference<EndedShuffles> ended = new AtomicReference<>();
    ended.set(
        new EndedShuffles(
            shuffles -> {
              calls.incrementAndGet();
              ended.get().add(key(5000)); // one that ends meanwhile
              throw FlightException.broken("server", "away", null);
            },
            later, Duration.ofHours(1)));
    for (int shuffle = 0; shuffle < 2500; shuffle++) {
      ended.get().add(key(shuffle));
    }
    later.runNext();
    assertEquals(1, calls.get(), "of three requests the others are not tried");
    later.runNext(); // for the one that ended meanwhile: it waits with the others
    ended.get().add(key(5001));
    assertEquals(1, calls.get());
    assertEquals(1, later.tasks.size());
    assertTrue(later.delays.getLast() > TimeUnit.MINUTES.toMillis(59), "in " + later.delays.getLast() + " ms");
    later.shutdownNow();
  }

  /** Runs scheduled tasks when the test asks for it. */
  private static final class ManualTimer extends ScheduledThreadPoolExecutor {
    private final Deque<Runnable> tasks = new ArrayDeque<>();
    private final Deque<Long> delays = new ArrayDeque<>();

    ManualTimer() {
      super(0);
    }

    @Override
    public ScheduledFuture<?> schedule(Runnable task, long delay, TimeUnit unit) {
      tasks.add(task);
      delays.add(unit.toMillis(delay));
      return null;
    }

    void runNext() {
      tasks.remove().run();
    }
  }
}
