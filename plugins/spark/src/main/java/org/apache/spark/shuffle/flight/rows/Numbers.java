package org.apache.spark.shuffle.flight.rows;

/** Numbers of seven bits a byte, the lowest first; the high bit says that another byte follows. As protobuf has them. */
final class Numbers {
  /** Bytes of the longest. */
  static final int LONGEST = 10;

  private static final int BITS = 7;
  private static final int MORE = 1 << BITS;

  private Numbers() {}

  /** Writes an unsigned number; the end of it. */
  static int put(byte[] target, int at, long number) {
    int next = at;
    long left = number;
    while ((left & -MORE) != 0) {
      target[next++] = (byte) (left | MORE);
      left >>>= BITS;
    }
    target[next++] = (byte) left;
    return next;
  }

  /** Writes a number of either sign, the sign in the lowest bit; the end of it. */
  static int putSigned(byte[] target, int at, long number) {
    return put(target, at, number << 1 ^ number >> (Long.SIZE - 1));
  }

  /** The number of either sign that {@link #putSigned} wrote as {@code number}. */
  static long signed(long number) {
    return number >>> 1 ^ -(number & 1);
  }
}
