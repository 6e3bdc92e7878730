package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class EndedShufflesTest {
  private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
  private final BlockingQueue<List<Integer>> told = new LinkedBlockingQueue<>();

  @AfterEach
  void stop() {
    timer.shutdownNow();
  }

  @Test
  void allArriveOnceAndTheLastOnesToo() throws Exception {
    EndedShuffles ended = new EndedShuffles(told::add, timer);
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
    EndedShuffles ended = new EndedShuffles(told::add, timer);
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
            timer);
    ended.add(1);
    assertEquals(List.of(1), told.poll(30, TimeUnit.SECONDS));
    ended.add(2);
    assertEquals(List.of(2), told.poll(30, TimeUnit.SECONDS));
  }
}
