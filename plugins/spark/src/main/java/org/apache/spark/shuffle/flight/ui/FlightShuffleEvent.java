package org.apache.spark.shuffle.flight.ui;

import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.shuffle.flight.metrics.Skew;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.shuffle.flight.metrics.WorkerTraffic;
import org.apache.spark.util.kvstore.KVIndex;

/**
 * What has become of a shuffle so far; the next one of that shuffle takes its place. Spark's event log has it, and the store of
 * a page's figures.
 *
 * @param fallback why Spark's sort shuffle has it; empty: the server has it
 * @param traffic of the tasks that have succeeded
 * @param lost map outputs that were lost
 * @param skew null while not all maps have run
 */
public record FlightShuffleEvent(
    int shuffle, int maps, int partitions, String fallback, Traffic traffic, long lost, Skew skew)
    implements SparkListenerEvent {
  @KVIndex
  @Override
  public int shuffle() {
    return shuffle;
  }

  /** Map tasks that succeeded again. */
  public long rerun() {
    return Math.max(0, traffic.sum(WorkerTraffic::maps) - maps);
  }
}
