package org.apache.spark.shuffle.flight.local;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.TellReadsRequest;
import org.junit.jupiter.api.Test;

class ReadCountsTest {
  private static ShuffleKey shuffle(int number) {
    return ShuffleKey.newBuilder().setApp("app").setShuffle(number).build();
  }

  private static Set<String> texts(TellReadsRequest.Builder request) {
    return request.getReadsList().stream()
        .map(read -> read.getShuffle().getShuffle() + ": " + read.getBlocks() + ", " + read.getBytes())
        .collect(Collectors.toSet());
  }

  @Test
  void readsAreAddedUpByWorkerAndShuffleAndTakenOnce() {
    ReadCounts counts = new ReadCounts();
    assertTrue(counts.add("w", shuffle(1), 2, 30));
    assertFalse(counts.add("w", shuffle(1), 1, 5));
    assertFalse(counts.add("w", shuffle(2), 1, 0));
    assertFalse(counts.add("v", shuffle(1), 1, 7));
    Map<String, TellReadsRequest.Builder> taken = counts.take();
    assertEquals(Set.of("w", "v"), taken.keySet());
    assertEquals(Set.of("1: 3, 35", "2: 1, 0"), texts(taken.get("w")));
    assertEquals(Set.of("1: 1, 7"), texts(taken.get("v")));
    assertTrue(counts.take().isEmpty());
    assertTrue(counts.add("w", shuffle(1), 1, 1));
  }
}
