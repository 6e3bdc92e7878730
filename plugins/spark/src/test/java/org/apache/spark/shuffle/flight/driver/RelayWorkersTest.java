package org.apache.spark.shuffle.flight.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.junit.jupiter.api.Test;

class RelayWorkersTest {
  private static final Worker A = Worker.newBuilder().setId("a").build();
  private static final Worker B = Worker.newBuilder().setId("b").build();
  private static final Worker C = Worker.newBuilder().setId("c").build();
  private static final int FEW = 2 * RelayWorkers.LEAST_PARTITIONS - 1;
  private static final int MANY = 100;

  private final RelayWorkers relays = new RelayWorkers("app", 2);

  private List<String> share(int shuffle, int partitions, Set<String> away, Worker... workers) {
    return relays.choose(shuffle, partitions, List.of(workers), away).stream().map(Worker::getId).toList();
  }

  private String choose(int shuffle, Worker... workers) {
    List<String> chosen = share(shuffle, FEW, Set.of(), workers);
    assertEquals(1, chosen.size());
    return chosen.get(0);
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
  void workersShareShufflesWithManyPartitionsUpToTheMost() {
    assertEquals(2, Set.copyOf(share(0, FEW + 1, Set.of(), A, B, C)).size());
    assertEquals(2, Set.copyOf(share(1, MANY, Set.of(), A, B, C)).size());
    assertEquals(1, share(2, MANY, Set.of(), A).size());
    assertEquals(1, share(3, 1, Set.of(), A, B, C).size());
  }

  @Test
  void sharedShufflesTakeTheWorkersThatRelayTheFewest() {
    List<String> both = share(0, MANY, Set.of(), A, B, C);
    Set<String> free = new HashSet<>(Set.of("a", "b", "c"));
    free.removeAll(both);
    assertEquals(free, Set.of(choose(1, A, B, C)));
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
      assertEquals(List.of("c"), share(shuffle, MANY, Set.of(), leaves, silent, C));
    }
    assertEquals(List.of("b"), share(3, MANY, Set.of(), leaves, silent));
    assertEquals(List.of("a"), share(4, MANY, Set.of(), leaves));
    assertEquals(List.of(), share(5, MANY, Set.of()));
  }

  @Test
  void workersWithoutAConnectionAreOnlyForWantOfOthers() {
    Worker leaves = A.toBuilder().setDraining(true).build();
    assertEquals(List.of("a"), share(0, MANY, Set.of("b", "c"), leaves, B, C));
    assertEquals(Set.of("b", "c"), Set.copyOf(share(1, MANY, Set.of("b", "c"), B, C)));
  }

  @Test
  void applicationsDoNotAllBeginAtTheSameWorker() {
    Set<String> first = new HashSet<>();
    for (int app = 0; app < 50; app++) {
      first.add(new RelayWorkers("app-" + app, 2).choose(0, FEW, List.of(A, B), Set.of()).get(0).getId());
    }
    assertEquals(Set.of("a", "b"), first);
  }
}
