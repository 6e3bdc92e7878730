package org.apache.spark.shuffle.flight.rows;

/**
 * Estimates how many bytes Spark's own writers would make of a block of rows, from blocks of the same kind for which that
 * was found out. Of one kind are blocks whose rows have about the same length, within a factor of two, and that became
 * about the same share of it, within a quarter: by these two the others differ most. One thread at a time.
 */
final class SparkSizes {
  /** Of a kind, blocks that are not looked at after one that was: one, then each time twice as many and one more. */
  private static final int MOST_BETWEEN = 31;

  private static final int LENGTHS = 20;
  private static final int SHARES = 24;
  private static final double LOG_OF_STEP = Math.log(1.25);

  private final double[] inSpark = new double[LENGTHS * SHARES];
  private final double[] rows = new double[LENGTHS * SHARES];
  private final byte[] last = new byte[LENGTHS * SHARES];
  private final byte[] left = new byte[LENGTHS * SHARES];

  /** The estimate for {@code length} bytes of rows that became {@code size}; 0: find it out, and {@link #add} it. */
  int estimate(int length, int size) {
    int kind = kind(length, size);
    if (left[kind] == 0) {
      return 0;
    }
    left[kind]--;
    return (int) Math.max(1, Math.min(length, length * (inSpark[kind] / rows[kind])));
  }

  /** Spark would write {@code found} bytes for {@code length} of rows that became {@code size}. */
  void add(int length, int size, int found) {
    int kind = kind(length, size);
    inSpark[kind] = inSpark[kind] / 2 + found;
    rows[kind] = rows[kind] / 2 + length;
    last[kind] = (byte) Math.min(MOST_BETWEEN, 2 * last[kind] + 1);
    left[kind] = last[kind];
  }

  private static int kind(int length, int size) {
    int octave = Math.min(LENGTHS - 1, 31 - Integer.numberOfLeadingZeros(Math.max(1, length)));
    int share = (int) (Math.log(length / (double) Math.max(1, size)) / LOG_OF_STEP);
    return octave * SHARES + Math.max(0, Math.min(SHARES - 1, share));
  }
}
