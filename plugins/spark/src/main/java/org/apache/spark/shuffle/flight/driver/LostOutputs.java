package org.apache.spark.shuffle.flight.driver;

import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.IntFunction;
import org.apache.spark.FetchFailed;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.shuffle.flight.blocks.MapLocation;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.DaemonThreads;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.storage.BlockManagerId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.runtime.BoxedUnit;

/**
 * What the driver does about map outputs that are lost or have moved: Spark learns of all of a shuffle at once.
 *
 * <p>A fetch failure tells Spark of one map output, and costs the stage one of its few attempts (four in a row). So with the
 * first one the workers are asked which others of the shuffle are gone; whatever the answer, Spark's own handling of the
 * failure goes on meanwhile. An answer that comes when the map stage runs again already is still in time: Spark looks for
 * missing outputs once more when a map stage ends.
 */
final class LostOutputs extends SparkListener implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(LostOutputs.class);

  /** A map output where Spark believes it to be: Spark's id of the map, and the location. */
  private record Place(long map, BlockManagerId location) {}

  private final Connections connections;
  private final IntFunction<Optional<ShuffleKey>> keys;
  private final Runnable doubt;
  private final ShuffleReport report;
  private final Duration timeout;
  private final Set<Integer> toLookAt = ConcurrentHashMap.newKeySet();
  private final ExecutorService thread =
      Executors.newSingleThreadExecutor(DaemonThreads.of(() -> "flight-shuffle-losses"));
  private volatile MapOutputTrackerMaster tracker;

  /**
   * @param keys what the server has a shuffle as, by Spark's number of it; may block
   * @param doubt called when the server may not have the application any more
   * @param report counts those that are lost
   * @param timeout how long a worker may take to look at the outputs of one question
   */
  LostOutputs(
      Connections connections, IntFunction<Optional<ShuffleKey>> keys, Runnable doubt, ShuffleReport report,
      Duration timeout) {
    this.connections = connections;
    this.keys = keys;
    this.doubt = doubt;
    this.report = report;
    this.timeout = timeout;
  }

  /** Listens to the tasks of {@code context} from now on; again is a no-op. */
  synchronized void watch(SparkContext context) {
    if (tracker == null && context.env().mapOutputTracker() instanceof MapOutputTrackerMaster master) {
      tracker = master;
      // Beside Spark's own: a queue of its own is a thread that each event of each job wakes.
      context.listenerBus().addToManagementQueue(this);
    }
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd ended) {
    if (!(ended.reason() instanceof FetchFailed failure)) {
      return;
    }
    doubt.run();
    if (failure.bmAddress() != null) {
      report.lost(failure.shuffleId(), List.of(failure.bmAddress()));
    }
    if (failure.bmAddress() != null
        && MapLocation.isAtAWorker(failure.bmAddress())
        && toLookAt.add(failure.shuffleId())) {
      soon(() -> look(failure.shuffleId()));
    }
  }

  private void soon(Runnable task) {
    PeriodicTask.start(thread, "looking for lost map outputs", task);
  }

  private void look(int shuffle) {
    toLookAt.remove(shuffle);
    Option<ShuffleStatus> status = tracker.shuffleStatuses().get(shuffle);
    Optional<ShuffleKey> key = keys.apply(shuffle);
    if (status.isEmpty() || key.isEmpty()) {
      return;
    }
    try {
      connections.refresh();
    } catch (IOException e) {
      LOG.info("{}; asking the workers where they were last", e.getMessage());
    }
    Map<Long, Place> missing = new HashMap<>();
    byWorker(status.get()).forEach((worker, outputs) -> missing.putAll(missingAt(worker, key.get(), outputs)));
    settle(key.get(), status.get(), missing);
  }

  private Map<Long, Place> missingAt(String worker, ShuffleKey shuffle, Map<Long, Place> outputs) {
    try {
      Optional<WorkerAddress> address = connections.find(worker);
      if (address.isEmpty()) {
        return outputs; // the master has given it up, or it has left
      }
      Map<Long, Place> missing = new HashMap<>(outputs);
      missing.keySet().retainAll(LossCheck.lost(connections, address.get(), shuffle, outputs.keySet(), timeout));
      return missing;
    } catch (IOException e) {
      LOG.info("{}; what else of shuffle {} is lost there shows when it is read", e.getMessage(), shuffle.getShuffle());
      return Map.of();
    }
  }

  /** Tells Spark where the outputs are that {@code missing} has at the wrong place, and which of them are nowhere. */
  private void settle(ShuffleKey key, ShuffleStatus status, Map<Long, Place> missing) {
    if (missing.isEmpty()) {
      return;
    }
    int shuffle = (int) key.getShuffle();
    Map<Long, List<String>> found = Map.of();
    try {
      found = connections.outputs(key, missing.keySet());
    } catch (IOException e) {
      LOG.info("{}; whether outputs of shuffle {} lie at other workers is not known", e.getMessage(), shuffle);
    }
    Set<BlockManagerId> lost = new HashSet<>();
    for (Map.Entry<Long, Place> entry : missing.entrySet()) {
      long output = entry.getKey();
      BlockManagerId location = entry.getValue().location();
      String worker = found.getOrDefault(output, List.of("")).get(0);
      if (worker.isEmpty() || MapLocation.isAt(location, worker)) {
        lost.add(location);
      } else {
        tracker.updateMapOutput(shuffle, entry.getValue().map(), MapLocation.moved(location, worker));
      }
    }
    if (lost.size() < missing.size()) {
      LOG.info("{} map outputs of shuffle {} lie at other workers now", missing.size() - lost.size(), shuffle);
    }
    if (!lost.isEmpty()) {
      LOG.warn("{} map outputs of shuffle {} are lost; they run again when they are needed", lost.size(), shuffle);
      status.removeOutputsByFilter(lost::contains);
      report.lost(shuffle, lost);
    }
    tracker.incrementEpoch();
  }

  /** The server has nothing of a shuffle any more: Spark learns that all of its outputs are lost. Throws nothing. */
  void forget(int shuffle) {
    PeriodicTask.guarded("reporting lost map outputs to Spark", () -> removeOutputs(shuffle)).run();
  }

  private void removeOutputs(int shuffle) {
    Option<ShuffleStatus> status = tracker == null ? Option.empty() : tracker.shuffleStatuses().get(shuffle);
    if (status.isDefined()) {
      report.lost(shuffle, locations(status.get()));
      status.get().removeOutputsByFilter(MapLocation::isAtAWorker);
      tracker.incrementEpoch();
    }
  }

  private static List<BlockManagerId> locations(ShuffleStatus shuffle) {
    return byWorker(shuffle).values().stream()
        .flatMap(outputs -> outputs.values().stream())
        .map(Place::location)
        .toList();
  }

  /** Where Spark believes the outputs of a shuffle to lie, by the output's number, by worker. */
  private static Map<String, Map<Long, Place>> byWorker(ShuffleStatus shuffle) {
    Map<String, Map<Long, Place>> found = new HashMap<>();
    shuffle.withMapStatuses(
        statuses -> {
          for (MapStatus status : statuses) {
            if (status != null && MapLocation.isAtAWorker(status.location())) {
              found.computeIfAbsent(MapLocation.worker(status.location().executorId()), worker -> new HashMap<>())
                  .put(MapLocation.output(status.location()), new Place(status.mapId(), status.location()));
            }
          }
          return BoxedUnit.UNIT;
        });
    return found;
  }

  /**
   * A worker is gone for good, or was drained: of what lay there, of all shuffles, Spark learns where it lies now, or that it
   * is lost, before anybody misses it.
   */
  void workerGone(String worker) {
    if (tracker == null) {
      return; // no shuffle was registered yet
    }
    LOG.warn("Flight Shuffle worker {} is gone", worker);
    Iterator<Tuple2<Object, ShuffleStatus>> statuses = tracker.shuffleStatuses().iterator();
    while (statuses.hasNext()) {
      Tuple2<Object, ShuffleStatus> each = statuses.next();
      soon(() -> workerGone(worker, (Integer) each._1(), each._2())); // one that fails leaves the others
    }
  }

  private void workerGone(String worker, int shuffle, ShuffleStatus status) {
    Map<Long, Place> missing = byWorker(status).getOrDefault(worker, Map.of());
    if (!missing.isEmpty()) {
      keys.apply(shuffle).ifPresent(key -> settle(key, status, missing));
    }
  }

  @Override
  public void close() {
    thread.shutdownNow();
  }
}
