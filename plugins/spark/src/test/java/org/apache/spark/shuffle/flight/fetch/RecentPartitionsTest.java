package org.apache.spark.shuffle.flight.fetch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

class RecentPartitionsTest {
  private final RecentPartitions recent = new RecentPartitions();

  private int added(int first, int end, int step) {
    int times = 0;
    for (int partition = first; partition < end; partition += step) {
      recent.add(partition);
      times += recent.inTurn() ? 1 : 0;
    }
    return times;
  }

  @Test
  void oneAfterTheOtherIsInTurnAfterAWhile() {
    assertEquals(0, added(0, 25, 1));
    assertEquals(75, added(25, 100, 1));
  }

  @Test
  void tasksThatOvertakeEachOtherAreInTurn() {
    for (int pair = 0; pair < 40; pair += 2) {
      recent.add(pair + 1);
      recent.add(pair);
    }
    assertTrue(recent.inTurn());
  }

  @Test
  void everySecondIsNotInTurn() {
    assertEquals(0, added(0, 1000, 2));
  }

  @Test
  void halfOfThemByChanceAreNotInTurn() {
    Random random = new Random(7);
    int times = 0;
    for (int partition = 0; partition < 10_000; partition++) {
      if (random.nextBoolean()) {
        recent.add(partition);
        times += recent.inTurn() ? 1 : 0;
      }
    }
    assertTrue(times < 50, times + " of 10,000");
  }

  @Test
  void whoStartsAgainBeginsFromNothing() {
    assertEquals(75, added(0, 100, 1));
    recent.add(0);
    assertFalse(recent.inTurn());
    assertEquals(0, added(1, 25, 1));
    recent.add(25);
    assertTrue(recent.inTurn());
    recent.add(1_000_000);
    assertFalse(recent.inTurn());
  }

  @Test
  void oneFarBehindThatComesLateChangesNothing() {
    added(0, 99 - 63, 1);
    added(99 - 62, 100, 1);
    assertFalse(recent.add(99 - 63));
    assertTrue(recent.inTurn());
  }

  @Test
  void whoAsksForOneAgainBeginsAnew() {
    assertFalse(recent.add(0), "there was nothing before");
    assertEquals(15, added(1, 40, 1));
    assertTrue(recent.add(0));
    assertFalse(recent.inTurn());
    assertFalse(recent.add(1));
  }
}
