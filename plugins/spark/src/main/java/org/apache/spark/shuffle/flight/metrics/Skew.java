package org.apache.spark.shuffle.flight.metrics;

import java.util.Arrays;

/**
 * How unlike the partitions of a shuffle are in size, as Spark's map statuses have it: to within a tenth, or averages above
 * 2,000 partitions.
 *
 * @param largestPartition its number
 */
public record Skew(long median, long percentile99, long largest, int largestPartition) {

  /** @param sizes bytes of each partition, one at least */
  public static Skew of(long[] sizes) {
    int largest = 0;
    for (int i = 1; i < sizes.length; i++) {
      largest = sizes[i] > sizes[largest] ? i : largest;
    }
    long[] sorted = sizes.clone();
    Arrays.sort(sorted);
    return new Skew(
        sorted[sorted.length / 2], sorted[(int) (sorted.length * 99L / 100)], sorted[sorted.length - 1], largest);
  }
}
