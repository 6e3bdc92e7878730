package org.apache.spark.shuffle.flight.driver;

import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.flight.proto.Worker;
import scala.util.hashing.MurmurHash3$;

/**
 * Which workers relay which pipelined shuffle of an application: those that relay the fewest of them, more of them the more
 * partitions it has. Among equals another one comes first for each application. Thread-safe.
 */
final class RelayWorkers {
  /** For fewer, another stream of each writer costs more than another worker relieves. */
  static final int LEAST_PARTITIONS = 4;

  private final String app;
  private final int most;
  private final Map<Integer, List<String>> chosen = new HashMap<>();

  /** @param most workers of one shuffle */
  RelayWorkers(String app, int most) {
    this.app = app;
    this.most = most;
  }

  /**
   * The workers that share the partitions of a shuffle, until {@link #ended}. Those that take nothing new, have sent no
   * heartbeat or are {@code away}, only when there are no others.
   *
   * @param away ids of workers without a connection
   * @return empty when there are none
   */
  synchronized List<Worker> choose(int shuffle, int partitions, List<Worker> workers, Set<String> away) {
    int best = workers.stream().mapToInt(worker -> unfit(worker, away)).min().orElse(0);
    List<Worker> found =
        workers.stream()
            .filter(worker -> unfit(worker, away) == best)
            .sorted(
                Comparator.comparingLong(this::shuffles)
                    .thenComparingInt(worker -> MurmurHash3$.MODULE$.stringHash(app + worker.getId())))
            .limit(Math.max(1, Math.min(most, partitions / LEAST_PARTITIONS)))
            .toList();
    chosen.put(shuffle, found.stream().map(Worker::getId).toList());
    return found;
  }

  private static int unfit(Worker worker, Set<String> away) {
    if (away.contains(worker.getId())) {
      return 3;
    }
    if (worker.getDraining()) {
      return 2;
    }
    return worker.getSilent() ? 1 : 0;
  }

  private long shuffles(Worker worker) {
    return chosen.values().stream().flatMap(Collection::stream).filter(worker.getId()::equals).count();
  }

  synchronized void ended(int shuffle) {
    chosen.remove(shuffle);
  }
}
