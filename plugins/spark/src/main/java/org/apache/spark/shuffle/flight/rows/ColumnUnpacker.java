package org.apache.spark.shuffle.flight.rows;

import static org.apache.spark.shuffle.flight.rows.ColumnPacker.DIFFERENCES;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.FRAME;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.HALF;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.HALVES;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.LENGTH;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.LITTLE;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.WORD;
import static org.apache.spark.shuffle.flight.rows.RowFormat.LENGTH_BYTES;

import java.io.IOException;

/**
 * Makes the rows again that a {@link ColumnPacker} packed. Nothing is believed: each length is compared with the bytes that
 * are there before anything is allocated or written by it. One thread at a time.
 */
final class ColumnUnpacker {
  /** Bytes that an array must have behind the packed ones: values are read eight bytes at once. */
  static final int SLACK = Long.BYTES;

  private static final int BITS = 7;
  private static final int LONGEST_HALF = 4;

  private int[] rowsAt = new int[0];
  private byte[] source;
  private int at;
  private int end;
  private int rows;

  /**
   * @param packed with {@link #SLACK} bytes behind the first {@code length}
   * @param target for exactly {@code rawLength} bytes
   * @throws IOException they are not what such a buffer of rows was packed to
   */
  void unpack(byte[] packed, int length, byte[] target, int rawLength) throws IOException {
    source = packed;
    at = 0;
    end = length;
    long count = number();
    long words = number();
    check(count > 0 && count <= rawLength / LENGTH_BYTES, "rows", count);
    check(words >= 0 && words <= (rawLength / count - LENGTH_BYTES) / Long.BYTES, "words of a row", words);
    rows = (int) count;
    int fixed = (int) words * Long.BYTES;
    int tails = rowLengths(fixed, target, rawLength);
    for (int offset = 0; offset < fixed; offset += Long.BYTES) {
      column(target, offset);
    }
    check(end - at == tails, "bytes of variable parts", tails);
    if (tails > 0) {
      tails(target, fixed);
    }
  }

  private static void check(boolean right, String what, long number) throws IOException {
    if (!right) {
      throw RowCodec.malformed("it says that it has " + number + " " + what);
    }
  }

  /** Finds where the rows begin, and, when their lengths are right, writes these; the bytes of all variable parts. */
  private int rowLengths(int fixed, byte[] target, int rawLength) throws IOException {
    int kind = next();
    check(kind <= LONGEST_HALF, "bytes of each row's length, or another kind of them", kind);
    long least = Numbers.signed(number());
    check(least >= 0 && least <= rawLength / Long.BYTES, "words at least in a variable part", least);
    int values = skip(kind);
    if (rowsAt.length < rows) {
      rowsAt = new int[rows];
    }
    long mask = mask(kind);
    long begin = 0;
    for (int row = 0; row < rows; row++) {
      rowsAt[row] = (int) begin + LENGTH_BYTES;
      long tail = least + ((long) LITTLE.get(source, values + row * kind) & mask);
      begin += LENGTH_BYTES + fixed + Long.BYTES * tail;
    }
    check(begin == rawLength, "bytes of rows", begin);
    for (int row = 1; row < rows; row++) {
      LENGTH.set(target, rowsAt[row - 1] - LENGTH_BYTES, rowsAt[row] - LENGTH_BYTES - rowsAt[row - 1]);
    }
    LENGTH.set(target, rowsAt[rows - 1] - LENGTH_BYTES, rawLength - rowsAt[rows - 1]);
    return rawLength - rows * (LENGTH_BYTES + fixed);
  }

  private void tails(byte[] target, int fixed) {
    int from = at;
    for (int row = 0; row < rows; row++) {
      int length = (int) LENGTH.get(target, rowsAt[row] - LENGTH_BYTES) - fixed;
      System.arraycopy(source, from, target, rowsAt[row] + fixed, length);
      from += length;
    }
  }

  private void column(byte[] target, int offset) throws IOException {
    int kind = next();
    int width = kind & 0xf;
    check(width <= Long.BYTES, "bytes of each value", width);
    switch (kind >> 4) {
      case FRAME -> frame(target, offset, width);
      case DIFFERENCES -> differences(target, offset, width);
      case HALVES -> halves(target, offset, width);
      default -> throw RowCodec.malformed("it has a column of the unknown kind " + (kind >> 4));
    }
  }

  private void frame(byte[] target, int offset, int width) throws IOException {
    long least = Numbers.signed(number());
    int next = skip(width);
    long mask = mask(width);
    for (int row = 0; row < rows; row++) {
      WORD.set(target, rowsAt[row] + offset, least + ((long) LITTLE.get(source, next) & mask));
      next += width;
    }
  }

  private void differences(byte[] target, int offset, int width) throws IOException {
    long value = Numbers.signed(number());
    long least = Numbers.signed(number());
    int next = skip(width, rows - 1);
    long mask = mask(width);
    WORD.set(target, rowsAt[0] + offset, value);
    for (int row = 1; row < rows; row++) {
      value += least + ((long) LITTLE.get(source, next) & mask);
      WORD.set(target, rowsAt[row] + offset, value);
      next += width;
    }
  }

  private void halves(byte[] target, int offset, int highWidth) throws IOException {
    int lowWidth = next();
    check(highWidth <= LONGEST_HALF && lowWidth <= LONGEST_HALF, "bytes of half a value", Math.max(highWidth, lowWidth));
    long leastHigh = Numbers.signed(number());
    long leastLow = number();
    int high = skip(highWidth);
    int low = skip(lowWidth);
    long highMask = mask(highWidth);
    long lowMask = mask(lowWidth);
    for (int row = 0; row < rows; row++) {
      long upper = leastHigh + ((long) LITTLE.get(source, high) & highMask);
      long lower = leastLow + ((long) LITTLE.get(source, low) & lowMask);
      WORD.set(target, rowsAt[row] + offset, (upper << HALF) + lower);
      high += highWidth;
      low += lowWidth;
    }
  }

  private static long mask(int width) {
    return width == 0 ? 0 : -1L >>> (Long.SIZE - Byte.SIZE * width);
  }

  /** Goes on behind a value for each row; where they begin. */
  private int skip(int width) throws IOException {
    return skip(width, rows);
  }

  private int skip(int width, int values) throws IOException {
    int begin = at;
    check((long) width * values <= end - at, "bytes of each value, more than there are,", width);
    at += width * values;
    return begin;
  }

  private int next() throws IOException {
    if (at >= end) {
      throw RowCodec.malformed("its columns are cut off");
    }
    return source[at++] & 0xff;
  }

  /** A number as {@link Numbers#put} writes it. */
  private long number() throws IOException {
    long number = 0;
    for (int shift = 0; shift < Long.SIZE; shift += BITS) {
      int read = next();
      number |= (long) (read & 0x7f) << shift;
      if (read < 0x80) {
        return number;
      }
    }
    throw RowCodec.malformed("a number in it does not end");
  }
}
