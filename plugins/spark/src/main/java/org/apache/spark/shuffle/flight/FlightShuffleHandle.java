package org.apache.spark.shuffle.flight;

import java.io.UncheckedIOException;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.shuffle.flight.metrics.TrafficCounter;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.rows.RowPath;

/**
 * A shuffle that goes through the server; the tasks of one that fell back get Spark's own handle.
 *
 * <p>Travels to the tasks with all they need. Nothing is passed through the configuration, because an executor
 * may have fetched that before the application was registered.
 */
final class FlightShuffleHandle extends ShuffleHandle {
  private static final long serialVersionUID = 1L;

  private final BaseShuffleHandle<?, ?, ?> inner;
  private final String app;
  private final long generation;
  private final int partitions;
  private final int rowBuffer;
  private final TrafficCounter traffic;
  private final transient Supplier<Optional<ShuffleKey>> registered; // null where the handle has arrived

  /**
   * The driver's.
   *
   * @param inner the handle of Spark's sort shuffle: which of its writers is used
   * @param rowBuffer bytes of the buffers in which rows are gathered ({@link RowPath}), 0 if Spark's own writers write
   * @param traffic what its tasks count in; null: nothing is counted
   * @param registered what the server has it as, empty if the shuffle falls back; waits until that is known
   */
  FlightShuffleHandle(
      BaseShuffleHandle<?, ?, ?> inner, int partitions, int rowBuffer, TrafficCounter traffic,
      Supplier<Optional<ShuffleKey>> registered) {
    this(inner, ShuffleKey.getDefaultInstance(), partitions, rowBuffer, traffic, registered);
  }

  private FlightShuffleHandle(
      BaseShuffleHandle<?, ?, ?> inner, ShuffleKey key, int partitions, int rowBuffer, TrafficCounter traffic,
      Supplier<Optional<ShuffleKey>> registered) {
    super(inner.shuffleId());
    this.inner = inner;
    this.app = key.getApp();
    this.generation = key.getGeneration();
    this.partitions = partitions;
    this.rowBuffer = rowBuffer;
    this.traffic = traffic;
    this.registered = registered;
  }

  /**
   * What goes to the tasks; asked whenever a stage is submitted, on the thread of Spark's scheduler. So tasks of a stage that is
   * submitted again use the generation that the server has then.
   *
   * @throws UncheckedIOException the server does not take the shuffle, and it may not fall back: Spark fails the stage with it
   */
  private Object writeReplace() {
    if (registered == null) {
      return this;
    }
    Optional<ShuffleKey> key = registered.get();
    return key.isPresent() ? new FlightShuffleHandle(inner, key.get(), partitions, rowBuffer, traffic, null) : inner;
  }

  BaseShuffleHandle<?, ?, ?> inner() {
    return inner;
  }

  int partitions() {
    return partitions;
  }

  /** How its rows are written and read, the same for all of its maps and readers; null: as Spark does. */
  RowPath rows() {
    return rowBuffer == 0 ? null : RowPath.of(inner.dependency().serializer(), rowBuffer);
  }

  /** Counts what a task has moved of it. */
  void count(Traffic moved) {
    if (traffic != null && !moved.empty()) {
      traffic.add(moved);
    }
  }

  /** The shuffle's name at the server; only tasks have it. */
  ShuffleKey key() {
    return ShuffleKey.newBuilder().setApp(app).setShuffle(shuffleId()).setGeneration(generation).build();
  }
}
