package org.apache.spark.shuffle.flight.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.junit.jupiter.api.Test;

class RelayWorkersTest {
  private static final Worker A = Worker.newBuilder().setId("a").build();
  private static final Worker B = Worker.newBuilder().setId("b").build();
  private static final Worker C = Worker.newBuilder().setId("c").build();

  private final RelayWorkers relays = new RelayWorkers("app");

  private String choose(int shuffle, Worker... workers) {
    return relays.choose(shuffle, List.of(workers)).orElseThrow().getId();
  }

  @Test
  void shufflesAreSpreadEvenlyOverAllWorkers() {
    List<String> chosen = new ArrayList<>();
    for (int shuffle = 0; shuffle < 7; shuffle++) {
      chosen.add(choose(shuffle, A, B, C));
    }
    assertEquals(Set.of("a", "b", "c"), new HashSet<>(chosen.subList(0, 3)));
    assertEquals(chosen.subList(0, 3), chosen.subList(3, 6));
    assertEquals(3, Collections.frequency(chosen, chosen.get(0)));
  }

  @Test
  void theWorkerOfAShuffleThatEndedHasRoomForTheNext() {
    String first = choose(0, A, B);
    String second = choose(1, A, B);
    assertNotEquals(first, second);
    relays.ended(1);
    assertEquals(second, choose(2, A, B));
    relays.ended(9);
  }

  @Test
  void whoLeavesOrIsNotHeardOfIsTheLastChoice() {
    Worker leaves = A.toBuilder().setDraining(true).build();
    Worker silent = B.toBuilder().setSilent(true).build();
    for (int shuffle = 0; shuffle < 3; shuffle++) {
      assertEquals("c", choose(shuffle, leaves, silent, C));
    }
    assertEquals("b", choose(3, leaves, silent));
    assertEquals("a", choose(4, leaves));
    assertEquals(Optional.empty(), relays.choose(5, List.of()));
  }

  @Test
  void applicationsDoNotAllBeginAtTheSameWorker() {
    Set<String> first = new HashSet<>();
    for (int app = 0; app < 50; app++) {
      first.add(new RelayWorkers("app-" + app).choose(0, List.of(A, B)).orElseThrow().getId());
    }
    assertEquals(Set.of("a", "b"), first);
  }
}
