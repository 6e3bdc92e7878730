package org.apache.spark.shuffle.flight.client;

import java.io.IOException;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.shuffle.flight.proto.LocateReply;
import org.apache.spark.shuffle.flight.proto.MapOutput;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;

/**
 * At which workers map outputs lie now, as the master knows it. They move: when a worker is drained, and to the other
 * copy of a shuffle with two when a worker is lost.
 */
public final class LocationLookup {
  private LocationLookup() {}

  /**
   * Blocks.
   *
   * @return for each of {@code maps} that is not lost its workers, the one to ask first in front
   */
  public static Map<Long, List<String>> of(Connections connections, ShuffleKey shuffle, Collection<Long> maps)
      throws IOException {
    Map<Long, List<String>> found = new HashMap<>();
    if (maps.isEmpty()) {
      return found;
    }
    Set<Long> wanted = new HashSet<>(maps);
    long next = Collections.min(wanted);
    long end = Collections.max(wanted) + 1;
    boolean more = true;
    while (more) {
      LocateReply page = connections.control().locate(shuffle, next, end);
      connections.learn(page.getWorkersList());
      for (MapOutput output : page.getOutputsList()) {
        if (wanted.contains(output.getOutput().getMap())) {
          Stream<String> workers = Stream.concat(Stream.of(output.getWorker()), output.getCopiesList().stream());
          found.put(output.getOutput().getMap(), workers.toList());
        }
      }
      more = page.getMore();
      if (more && page.getNextMap() <= next) {
        throw FlightException.broken("Flight Shuffle server", "its page of map outputs ends where it began: " + next, null);
      }
      next = page.getNextMap();
    }
    return found;
  }
}
