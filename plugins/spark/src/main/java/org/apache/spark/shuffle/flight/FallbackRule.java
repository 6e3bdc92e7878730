package org.apache.spark.shuffle.flight;

import org.apache.spark.ShuffleDependency;

/**
 * Which shuffles go to Spark's sort shuffle although the server would take them. A class of the user's implements it;
 * {@code spark.shuffle.flight.fallbackRule} names that class, which has a public constructor that takes nothing or a
 * {@code SparkConf}.
 *
 * <p>Asked on the driver, once for each shuffle, by the thread that plans it; several may ask at once. What it throws fails
 * the job.
 */
public interface FallbackRule {
  /**
   * @return why {@code shuffle} goes to sort shuffle, in words that are the same for all that go for this reason: it is logged
   *     once. Null when it goes to the server.
   */
  String reason(ShuffleDependency<?, ?, ?> shuffle);
}
