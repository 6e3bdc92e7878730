package org.apache.spark.shuffle.flight.driver;

import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.shuffle.flight.proto.Worker;
import scala.util.hashing.MurmurHash3$;

/**
 * Which worker relays which pipelined shuffle of an application: the one that relays the fewest of them. Among equals another
 * one comes first for each application. Thread-safe.
 */
final class RelayWorkers {
  private final String app;
  private final Map<Integer, String> chosen = new HashMap<>();

  RelayWorkers(String app) {
    this.app = app;
  }

  /**
   * The worker for a shuffle, until {@link #ended}. One that takes nothing new, or has sent no heartbeat, only when
   * there is no other.
   *
   * @return empty when there is none
   */
  synchronized Optional<Worker> choose(int shuffle, List<Worker> workers) {
    Optional<Worker> found =
        workers.stream()
            .min(
                Comparator.comparingInt(RelayWorkers::unfit)
                    .thenComparingInt(worker -> Collections.frequency(chosen.values(), worker.getId()))
                    .thenComparingInt(worker -> MurmurHash3$.MODULE$.stringHash(app + worker.getId())));
    found.ifPresent(worker -> chosen.put(shuffle, worker.getId()));
    return found;
  }

  private static int unfit(Worker worker) {
    if (worker.getDraining()) {
      return 2;
    }
    return worker.getSilent() ? 1 : 0;
  }

  synchronized void ended(int shuffle) {
    chosen.remove(shuffle);
  }
}
