package org.apache.spark.shuffle.flight.rows;

/**
 * Estimates how many bytes Spark's own writers would make of a block of rows, from blocks of the same kind for which that
 * was found out. Of one kind are blocks whose rows have about the same length, within a factor of two, and that became
 * about the same share of it, within a quarter: by these two the others differ most. One thread at a time.
 */
final class SparkSizes {
  /** Of a kind, blocks that are not looked at after one that was, at most. */
  private static final int MOST_BETWEEN = 31;

  private static final int LENGTHS = 20;
  private static final int SHARES = 24;
  private static final double LOG_OF_STEP = Math.log(1.25);

  private final Kind[] kinds = new Kind[LENGTHS * SHARES];

  /** The estimate for {@code length} bytes of rows that became {@code size}; 0: find it out, and {@link #add} it. */
  int estimate(int length, int size) {
    Kind kind = kind(length, size);
    if (!kind.unseen.next()) {
      return 0;
    }
    return (int) Math.max(1, Math.min(length, length * (kind.inSpark / kind.rows)));
  }

  /** Spark would write {@code found} bytes for {@code length} of rows that became {@code size}. */
  void add(int length, int size, int found) {
    Kind kind = kind(length, size);
    kind.inSpark = kind.inSpark / 2 + found;
    kind.rows = kind.rows / 2 + length;
    kind.unseen.tried(true);
  }

  private Kind kind(int length, int size) {
    int octave = Math.min(LENGTHS - 1, 31 - Integer.numberOfLeadingZeros(Math.max(1, length)));
    int share = (int) (Math.log(length / (double) Math.max(1, size)) / LOG_OF_STEP);
    int number = octave * SHARES + Math.max(0, Math.min(SHARES - 1, share));
    if (kinds[number] == null) {
      kinds[number] = new Kind();
    }
    return kinds[number];
  }

  /** Bytes of the blocks that were looked at, the latest ones count most. */
  private static final class Kind {
    private final RowCodec.Untried unseen = new RowCodec.Untried(MOST_BETWEEN);
    private double inSpark;
    private double rows;
  }
}
