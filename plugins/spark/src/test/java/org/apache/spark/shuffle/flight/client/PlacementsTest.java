package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.proto.PlaceReply;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.apache.spark.shuffle.flight.proto.WorkerChanges;
import org.junit.jupiter.api.Test;

/** One answer of the master for all outputs of some seconds, and what is known of workers. */
class PlacementsTest {
  private static final String HOST = "h";
  private long now = 100;
  private final Placements placements = new Placements(() -> now);

  private static PlaceReply answer(int inTurn, String... ids) {
    PlaceReply.Builder reply = PlaceReply.newBuilder().setGoodForMs(5000).setInTurn(inTurn);
    for (String id : ids) {
      reply.addWorkers(worker(id));
    }
    return reply.build();
  }

  private static Worker worker(String id) {
    return Worker.newBuilder().setId(id).setHost(HOST).setPort(1).build();
  }

  @Test
  void outputsGoToTheGoodCandidatesInTurnWhileTheAnswerHolds() {
    assertEquals(Optional.empty(), placements.choose(HOST, Set.of()));
    placements.answered(HOST, answer(2, "a", "b", "c"));
    Set<String> chosen = new HashSet<>();
    for (int n = 0; n < 4; n++) {
      chosen.add(placements.choose(HOST, Set.of()).orElseThrow());
    }
    assertEquals(Set.of("a", "b"), chosen);
    assertEquals(Optional.empty(), placements.choose("another", Set.of()));
    now += TimeUnit.SECONDS.toNanos(6);
    assertEquals(Optional.empty(), placements.choose(HOST, Set.of()));
  }

  @Test
  void whenAllCandidatesHaveFailedTheMasterIsAskedAnewWithoutThem() {
    placements.answered(HOST, answer(2, "a", "b", "c"));
    placements.failed("b");
    assertEquals(Optional.of("a"), placements.choose(HOST, Set.of()));
    assertEquals(Optional.of("c"), placements.choose(HOST, Set.of("a")));
    assertEquals(Optional.empty(), placements.choose(HOST, Set.of("c")));
    assertEquals(Set.of("x", "a", "b", "c"), placements.toAvoid(List.of("x")));
    now += TimeUnit.SECONDS.toNanos(6);
    assertEquals(Set.of(), placements.toAvoid(List.of()));
  }

  @Test
  void answersOneAfterTheOtherDoNotBeginWithOneWorkerEachTime() {
    Set<String> chosen = new HashSet<>();
    for (int n = 0; n < 2; n++) {
      placements.answered(HOST, answer(2, "a", "b"));
      chosen.add(placements.choose(HOST, Set.of()).orElseThrow());
    }
    assertEquals(Set.of("a", "b"), chosen);
  }

  @Test
  void aServerThatSaysNothingOfTurnsMeansTheFirst() {
    placements.answered(HOST, answer(0, "a", "b"));
    assertEquals(Optional.of("a"), placements.choose(HOST, Set.of()));
    assertEquals(Optional.of("a"), placements.choose(HOST, Set.of()));
  }

  @Test
  void aTableFollowsChangesAndBeginsAnewWithAWholeList() {
    WorkerTable table = new WorkerTable();
    table.learn(changes(5).setAll(true).addWorkers(worker("a")).addWorkers(worker("b")).build());
    table.learn(changes(7).addGone("a").addWorkers(worker("c")).build());
    table.learn(changes(6).addWorkers(worker("late")).build());
    assertEquals(Set.of("b", "c"), table.ids());
    assertEquals(7, table.known().getVersion());
    table.learn(changes(1).setEpoch(2).setAll(true).addWorkers(worker("d")).build());
    assertEquals(Set.of("d"), table.ids());
    table.replace(List.of(worker("e")));
    assertEquals(Set.of("e"), table.ids());
    assertTrue(table.find("d").isEmpty());
  }

  private static WorkerChanges.Builder changes(long version) {
    return WorkerChanges.newBuilder().setEpoch(1).setVersion(version);
  }
}
