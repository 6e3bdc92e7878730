package org.apache.spark.shuffle.flight.metrics;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToLongFunction;

/**
 * What tasks have moved of one shuffle.
 *
 * @param workers by the worker's id; map outputs without any bytes are at none, which is ""
 * @param fetchWaitMillis waits of readers for blocks, Spark's metric
 */
public record Traffic(Map<String, WorkerTraffic> workers, long recordsRead, long fetchWaitMillis) implements Serializable {
  public static final Traffic NONE = new Traffic(Map.of(), 0, 0);

  /** Whether it is nothing. Not named as a getter: what Spark writes as JSON has the components only. */
  public boolean empty() {
    return workers.isEmpty() && recordsRead == 0 && fetchWaitMillis == 0;
  }

  /** A map output that was committed at {@code worker}. */
  public static Traffic written(String worker, boolean local, long bytes, long records, long creditWaitNanos) {
    WorkerTraffic one = new WorkerTraffic(1, local ? bytes : 0, local ? 0 : bytes, records, creditWaitNanos, 0, 0);
    return new Traffic(Map.of(worker, one), 0, 0);
  }

  /** Both together. */
  public Traffic plus(Traffic other) {
    Map<String, WorkerTraffic> all = new TreeMap<>(workers);
    other.workers.forEach((worker, traffic) -> all.merge(worker, traffic, WorkerTraffic::plus));
    return new Traffic(all, recordsRead + other.recordsRead, fetchWaitMillis + other.fetchWaitMillis);
  }

  /** Of all workers. */
  public long sum(ToLongFunction<WorkerTraffic> figure) {
    return workers.values().stream().mapToLong(figure).sum();
  }

  /** Bytes of map outputs. */
  public long bytesWritten() {
    return sum(WorkerTraffic::writtenLocal) + sum(WorkerTraffic::writtenWire);
  }

  /** Bytes of blocks. */
  public long bytesRead() {
    return sum(WorkerTraffic::readLocal) + sum(WorkerTraffic::readWire);
  }
}
