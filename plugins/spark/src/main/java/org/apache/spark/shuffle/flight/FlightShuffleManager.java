package org.apache.spark.shuffle.flight;

import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.BlockingShuffleManager;

/**
 * {@code spark.shuffle.manager} on Spark 4.3, which wants a {@code BlockingShuffleManager} there. Set {@code
 * spark.shuffle.sort.io.plugin.class} to {@link FlightShuffleDataIO} beside it.
 */
public final class FlightShuffleManager extends FlightManagerBase implements BlockingShuffleManager {
  /** The constructor Spark looks for. */
  public FlightShuffleManager(SparkConf conf) {
    super(conf);
  }
}
