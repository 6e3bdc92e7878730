package org.apache.spark.shuffle.flight;

import java.io.UncheckedIOException;
import java.util.function.BooleanSupplier;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;

/**
 * A shuffle that goes through the server; the tasks of one that fell back get Spark's own handle.
 *
 * <p>Travels to the tasks and tells them all they need. Nothing is passed through the configuration, because an executor
 * may have fetched that before the application was registered.
 */
final class FlightShuffleHandle extends ShuffleHandle {
  private static final long serialVersionUID = 1L;

  private final BaseShuffleHandle<?, ?, ?> inner;
  private final String app;
  private final int partitions;
  private final int rowBuffer;
  private final transient BooleanSupplier registered; // null where the handle has arrived

  /**
   * @param inner the handle of Spark's sort shuffle: which of its writers is used
   * @param app the application's key at the server
   * @param rowBuffer bytes of the buffers in which rows are gathered ({@link RowPath}), 0 if Spark's own writers write
   * @param registered whether the server has it; waits until that is known
   */
  FlightShuffleHandle(
      BaseShuffleHandle<?, ?, ?> inner, String app, int partitions, int rowBuffer, BooleanSupplier registered) {
    super(inner.shuffleId());
    this.inner = inner;
    this.app = app;
    this.partitions = partitions;
    this.rowBuffer = rowBuffer;
    this.registered = registered;
  }

  /**
   * What goes to the tasks; asked when the stage is submitted, on the thread of Spark's scheduler.
   *
   * @throws UncheckedIOException the server does not take the shuffle, and it may not fall back: Spark fails the stage with it
   */
  private Object writeReplace() {
    return registered == null || registered.getAsBoolean() ? this : inner;
  }

  BaseShuffleHandle<?, ?, ?> inner() {
    return inner;
  }

  int partitions() {
    return partitions;
  }

  int rowBuffer() {
    return rowBuffer;
  }

  /** The shuffle's name at the server. */
  ShuffleKey key() {
    return ShuffleKey.newBuilder().setApp(app).setShuffle(shuffleId()).build();
  }
}
