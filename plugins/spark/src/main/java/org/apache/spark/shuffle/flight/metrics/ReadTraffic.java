package org.apache.spark.shuffle.flight.metrics;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;

/** What one reader has read since it was {@link #take taken} last: bytes by worker, records, and its waits for blocks. */
public final class ReadTraffic {
  private final Map<String, AtomicLong> bytes = new ConcurrentHashMap<>();
  private long records; // by the task's thread only, as the waits
  private long waitMillis;

  public void countRecord() {
    records++;
  }

  /** Counts the blocks that {@code worker} is asked for when they are given to {@code listener}. */
  public BlockFetchingListener counting(String worker, BlockFetchingListener listener) {
    AtomicLong sum = bytes.computeIfAbsent(worker, key -> new AtomicLong());
    return new BlockFetchingListener() {
      @Override
      public void onBlockFetchSuccess(String block, ManagedBuffer data) {
        sum.addAndGet(data.size());
        listener.onBlockFetchSuccess(block, data);
      }

      @Override
      public void onBlockFetchFailure(String block, Throwable why) {
        listener.onBlockFetchFailure(block, why);
      }
    };
  }

  /** Counts waits, and reports all to {@code metrics}. */
  public ShuffleReadMetricsReporter counting(ShuffleReadMetricsReporter metrics) {
    return new FetchMetrics(metrics, millis -> waitMillis += millis);
  }

  /**
   * All of it, once.
   *
   * @param wire whether a worker's files are not seen from here
   */
  public Traffic take(Predicate<String> wire) {
    Map<String, WorkerTraffic> workers = new TreeMap<>();
    bytes.forEach(
        (worker, sum) -> {
          long read = sum.getAndSet(0);
          if (read > 0) {
            boolean far = wire.test(worker);
            workers.put(worker, new WorkerTraffic(0, 0, 0, 0, 0, far ? 0 : read, far ? read : 0));
          }
        });
    Traffic all = new Traffic(workers, records, waitMillis);
    records = 0;
    waitMillis = 0;
    return all;
  }
}
