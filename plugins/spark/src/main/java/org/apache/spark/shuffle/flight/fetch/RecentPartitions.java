package org.apache.spark.shuffle.flight.fetch;

/**
 * Which partitions of a shuffle the tasks of this process asked for last. No I/O, not thread-safe.
 *
 * <p>Spark hands out the tasks of a stage in the order of their partitions, to whichever executor has a core free. So the
 * only executor there is gets nearly one after the other, and one of several every second or fewer.
 */
final class RecentPartitions {
  private static final int LOOKED_AT = 32;

  /** Of {@link #LOOKED_AT}. One of two executors gets 16, give or take 3. */
  private static final int ENOUGH = 26;

  private static final long LOOKED_AT_BITS = (1L << LOOKED_AT) - 1;

  private int highest = -1;

  /** Bit i: {@code highest - i} was asked for. */
  private long asked;

  /**
   * A task asks for {@code partition}.
   *
   * @return whether that begins anew: another job reads the shuffle, and what was asked for before says nothing any more
   */
  boolean add(int partition) {
    int ahead = partition - highest;
    boolean anew = ahead <= -Long.SIZE || ahead >= Long.SIZE || ahead <= 0 && (asked >>> -ahead & 1) != 0;
    if (anew) {
      asked = 1;
      highest = partition;
    } else if (ahead > 0) {
      asked = asked << ahead | 1;
      highest = partition;
    } else {
      asked |= 1L << -ahead;
    }
    return anew;
  }

  /** Whether what follows is probably asked for here, too. */
  boolean inTurn() {
    return Long.bitCount(asked & LOOKED_AT_BITS) >= ENOUGH;
  }
}
