package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
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
import org.apache.spark.shuffle.flight.net.FlightException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class EndedShufflesTest {
  private static final Duration PAUSE = Duration.ofMillis(50);

  private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
  private final BlockingQueue<List<Integer>> told = new LinkedBlockingQueue<>();

  @AfterEach
  void stop() {
    timer.shutdownNow();
  }

  @Test
  void allArriveOnceAndTheLastOnesToo() throws Exception {
    EndedShuffles ended = new EndedShuffles(told::add, timer, PAUSE);
    List<Integer> expected = new ArrayList<>();
    for (int shuffle = 0; shuffle < 2500; shuffle++) {
      ended.add(shuffle);
      expected.add(shuffle);
    }
    List<Integer> heard = new ArrayList<>();
    while (heard.size() < expected.size()) {
      List<Integer> some = told.poll(30, TimeUnit.SECONDS);
      assertTrue(some != null && some.size() <= 1000, "at most a thousand at once");
      heard.addAll(some);
    }
    assertEquals(expected, heard);
    ended.add(7);
    assertEquals(List.of(7), told.poll(30, TimeUnit.SECONDS));
  }

  @Test
  void toldNowIsNotToldAgain() throws Exception {
    EndedShuffles ended = new EndedShuffles(told::add, timer, PAUSE);
    ended.add(1);
    ended.tell();
    assertEquals(List.of(1), told.poll());
    ended.add(2);
    assertEquals(List.of(2), told.poll(30, TimeUnit.SECONDS));
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
    ended.add(1);
    assertEquals(List.of(1), told.poll(30, TimeUnit.SECONDS));
    ended.add(2);
    assertEquals(List.of(2), told.poll(30, TimeUnit.SECONDS));
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
    EndedShuffles ended =
        new EndedShuffles(
            shuffles -> {
              IOException now = once.getAndSet(null);
              if (now != null) {
                throw now;
              }
              told.add(shuffles);
            },
            timer, PAUSE);
    List<Integer> heard = new ArrayList<>();
    for (int shuffle = 1; shuffle <= 3; shuffle++) {
      ended.add(shuffle);
    }
    while (heard.size() < 3) {
      heard.addAll(told.poll(30, TimeUnit.SECONDS));
    }
    assertEquals(Set.of(1, 2, 3), Set.copyOf(heard));
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
              ended.get().add(5000); // one that ends meanwhile
              throw FlightException.broken("server", "away", null);
            },
            later, Duration.ofHours(1)));
    for (int shuffle = 0; shuffle < 2500; shuffle++) {
      ended.get().add(shuffle);
    }
    later.runNext();
    assertEquals(1, calls.get(), "of three requests the others are not tried");
    later.runNext(); // for the one that ended meanwhile: it waits with the others
    ended.get().add(5001);
    assertEquals(1, calls.get());
    assertEquals(1, later.tasks.size());
    assertTrue(later.delays.getLast() > TimeUnit.MINUTES.toMillis(59), "in " + later.delays.getLast() + " ms");
    later.shutdownNow();
  }

  /** Runs what is scheduled when it is told to. */
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
