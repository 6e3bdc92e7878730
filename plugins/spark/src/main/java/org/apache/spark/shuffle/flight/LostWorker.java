package org.apache.spark.shuffle.flight;

import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What the driver does about a worker that is gone for good: all map outputs there are unregistered at once. Found out
 * fetch failure by fetch failure, each would cost the stage one of its few attempts.
 */
final class LostWorker {
  private static final Logger LOG = LoggerFactory.getLogger(LostWorker.class);

  private LostWorker() {}

  static void unregisterOutputs(String worker) {
    SparkEnv env = SparkEnv.get();
    if (env == null || !(env.mapOutputTracker() instanceof MapOutputTrackerMaster tracker)) {
      return;
    }
    LOG.warn("Flight Shuffle worker {} is gone; the map outputs that lay there run again when they are needed", worker);
    for (ShuffleStatus shuffle : CollectionConverters.asJava(tracker.shuffleStatuses()).values()) {
      shuffle.removeOutputsByFilter(location -> MapLocation.isAt(location, worker));
    }
    tracker.incrementEpoch();
  }
}
