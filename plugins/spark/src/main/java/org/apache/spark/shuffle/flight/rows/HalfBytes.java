package org.apache.spark.shuffle.flight.rows;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Writes bytes of at most {@link #MOST_SYMBOLS} values, such as digits and hexadecimal characters, as half bytes: each is a
 * place in a table of these values. A codec that looks for repeats finds next to none in random ones. One thread at a time.
 */
final class HalfBytes {
  static final int MOST_SYMBOLS = 16;

  /** Bytes that are written at once, and that lengths are multiples of. */
  static final int STEP = Long.BYTES;

  static final int BITS = 4;

  private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final int VALUES = 1 << Byte.SIZE;

  /** The place of a value that is not in the table: beyond the {@link #STEP} half bytes, wherever it is moved. */
  private static final long UNKNOWN = 1L << Integer.SIZE;

  private final long[] places = new long[VALUES];
  private final byte[] symbols = new byte[MOST_SYMBOLS];
  private int count;

  /** Begins with an empty table. */
  void clear() {
    count = 0;
    Arrays.fill(places, UNKNOWN);
  }

  /** Adds the values of {@code length} bytes to the table; false when it cannot hold them. */
  boolean learn(byte[] source, int at, int length) {
    for (int i = at; i < at + length; i++) {
      int value = source[i] & 0xff;
      if (places[value] == UNKNOWN) {
        if (count == MOST_SYMBOLS) {
          return false;
        }
        symbols[count] = source[i];
        places[value] = count++;
      }
    }
    return true;
  }

  /** The most bytes of a table and of {@code length} bytes as half bytes. */
  static int size(int length) {
    return 1 + MOST_SYMBOLS + length / 2;
  }

  /** Writes the table; the end of it. */
  int putTable(byte[] target, int at) {
    target[at] = (byte) count;
    System.arraycopy(symbols, 0, target, at + 1, count);
    return at + 1 + count;
  }

  /** Writes {@code length} bytes, a multiple of {@link #STEP}; the end of them, or -1: the table does not have all of them. */
  int put(byte[] source, int from, int length, byte[] target, int at) {
    long all = 0;
    int next = at;
    for (int i = from; i < from + length; i += STEP) {
      long word = (long) ColumnPacker.LITTLE.get(source, i);
      long made = places[(int) word & 0xff]
          | places[(int) (word >>> 8) & 0xff] << BITS
          | places[(int) (word >>> 16) & 0xff] << 2 * BITS
          | places[(int) (word >>> 24) & 0xff] << 3 * BITS
          | places[(int) (word >>> 32) & 0xff] << 4 * BITS
          | places[(int) (word >>> 40) & 0xff] << 5 * BITS
          | places[(int) (word >>> 48) & 0xff] << 6 * BITS
          | places[(int) (word >>> 56)] << 7 * BITS;
      all |= made;
      INT.set(target, next, (int) made);
      next += STEP / 2;
    }
    return all < UNKNOWN ? next : -1;
  }
}
