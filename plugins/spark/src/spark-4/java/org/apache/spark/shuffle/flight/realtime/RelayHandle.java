package org.apache.spark.shuffle.flight.realtime;

import java.util.List;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.streaming.StreamingShuffleHandle;

/**
 * A pipelined shuffle that workers relay; one that fell back has Spark's own handle. Travels to the tasks with
 * all they need, the number of maps among it: the dependency's RDD does not travel.
 */
public final class RelayHandle<K, V, C> extends StreamingShuffleHandle<K, V, C> {
  private static final long serialVersionUID = 1L;

  private final String app;
  private final long generation;
  private final int maps;
  private final List<WorkerAddress> workers;

  /** @param workers one or more, which share the partitions */
  public RelayHandle(
      int shuffleId, ShuffleDependency<K, V, C> dependency, ShuffleKey key, int maps, List<WorkerAddress> workers) {
    super(shuffleId, dependency);
    this.app = key.getApp();
    this.generation = key.getGeneration();
    this.maps = maps;
    this.workers = List.copyOf(workers);
  }

  int maps() {
    return maps;
  }

  List<WorkerAddress> workers() {
    return workers;
  }

  /** The place among {@link #workers} of the one that relays {@code partition}. */
  int share(int partition) {
    return partition % workers.size();
  }

  /** The shuffle's name at the server. */
  ShuffleKey key() {
    return ShuffleKey.newBuilder().setApp(app).setShuffle(shuffleId()).setGeneration(generation).build();
  }
}
