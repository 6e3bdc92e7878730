package org.apache.spark.shuffle.flight;

import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;

/**
 * A shuffle that goes through the server; a shuffle that fell back keeps Spark's own handle.
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

  /**
   * @param inner the handle of Spark's sort shuffle: which of its writers is used
   * @param app the application's key at the server
   * @param rowBuffer bytes of the buffers in which rows are gathered ({@link RowPath}), 0 if Spark's own writers write
   */
  FlightShuffleHandle(BaseShuffleHandle<?, ?, ?> inner, String app, int partitions, int rowBuffer) {
    super(inner.shuffleId());
    this.inner = inner;
    this.app = app;
    this.partitions = partitions;
    this.rowBuffer = rowBuffer;
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
