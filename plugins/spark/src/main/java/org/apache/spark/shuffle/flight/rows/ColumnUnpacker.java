package org.apache.spark.shuffle.flight.rows;

import static org.apache.spark.shuffle.flight.rows.ColumnPacker.DIFFERENCES;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.FRAME;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.HALF;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.HALVES;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.IN_HALF_BYTES;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.LENGTH;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.LITTLE;
import static org.apache.spark.shuffle.flight.rows.ColumnPacker.WORD;
import static org.apache.spark.shuffle.flight.rows.RowFormat.LENGTH_BYTES;

import java.io.IOException;
import java.util.Arrays;

/**
 * Makes the rows again that a {@link ColumnPacker} packed. Nothing is believed: each length is compared with the bytes that
 * are there before anything is allocated or written by it. One thread at a time.
 */
final class ColumnUnpacker {
  /** Bytes that an array must have behind the packed ones: values are read eight bytes at once. */
  static final int SLACK = Long.BYTES;

  private static final int SHORT_TAIL = 64;

  /** Rows that are filled before the next ones, column by column: those of some hundred bytes stay in the first cache. */
  private static final int STRIP = 128;

  private static final int LEAST_COLUMN = 2;
  private static final int BITS = 7;
  private static final int LONGEST_HALF = 4;

  private int[] rowsAt = new int[0];
  private Column[] columns = new Column[0];
  private byte[] source;
  private int at;
  private int end;
  private int rows;
  private boolean halves;
  private int[] pairs;

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
    int tails = rowLengths(fixed, rawLength);
    columns((int) words);
    int stored = tails;
    if (halves) {
      symbols();
      stored = tails / 2;
    }
    check(end - at == stored, "bytes of variable parts", stored);
    for (int from = 0; from < rows; from += STRIP) {
      int to = Math.min(rows, from + STRIP);
      lengths(target, from, to);
      for (int number = 0; number < words; number++) {
        fill(target, number, from, to);
      }
      if (halves) {
        halfTails(target, fixed, from, to);
      } else if (tails > 0) {
        tails(target, fixed, from, to);
      }
    }
  }

  private static void check(boolean right, String what, long number) throws IOException {
    if (!right) {
      throw RowCodec.malformed("it says that it has " + number + " " + what);
    }
  }

  /** Finds where the rows begin, when their lengths are right; the bytes of all variable parts. */
  private int rowLengths(int fixed, int rawLength) throws IOException {
    int first = next();
    halves = (first & IN_HALF_BYTES) != 0;
    int kind = first & ~IN_HALF_BYTES;
    check(kind <= LONGEST_HALF, "bytes of each row's length, or another kind of them", kind);
    long least = Numbers.signed(number());
    check(least >= 0 && least <= rawLength / Long.BYTES, "words at least in a variable part", least);
    int values = skip(kind);
    if (rowsAt.length <= rows) {
      rowsAt = new int[rows + 1];
    }
    long mask = mask(kind);
    long begin = 0;
    for (int row = 0; row < rows; row++) {
      rowsAt[row] = (int) begin + LENGTH_BYTES;
      long tail = least + ((long) LITTLE.get(source, values + row * kind) & mask);
      begin += LENGTH_BYTES + fixed + Long.BYTES * tail;
    }
    check(begin == rawLength, "bytes of rows", begin);
    rowsAt[rows] = rawLength + LENGTH_BYTES;
    return rawLength - rows * (LENGTH_BYTES + fixed);
  }

  private void lengths(byte[] target, int from, int to) {
    for (int row = from; row < to; row++) {
      int begin = rowsAt[row];
      LENGTH.set(target, begin - LENGTH_BYTES, rowsAt[row + 1] - LENGTH_BYTES - begin);
    }
  }

  private void tails(byte[] target, int fixed, int from, int to) {
    int next = at;
    for (int row = from; row < to; row++) {
      int begin = rowsAt[row] + fixed;
      int length = rowsAt[row + 1] - LENGTH_BYTES - begin;
      if (length > SHORT_TAIL) {
        System.arraycopy(source, next, target, begin, length);
      } else { // a call takes longer
        for (int word = 0; word < length; word += Long.BYTES) {
          WORD.set(target, begin + word, (long) WORD.get(source, next + word));
        }
      }
      next += length;
    }
    at = next;
  }

  /** Reads the table of half bytes: the two bytes for each byte of two of them. */
  private void symbols() throws IOException {
    int count = next();
    check(count > 0 && count <= HalfBytes.MOST_SYMBOLS && count <= end - at, "different bytes of variable parts", count);
    if (pairs == null) {
      pairs = new int[1 << Byte.SIZE];
    }
    Arrays.fill(pairs, -1);
    for (int high = 0; high < count; high++) {
      for (int low = 0; low < count; low++) {
        pairs[high << HalfBytes.BITS | low] = source[at + low] & 0xff | (source[at + high] & 0xff) << Byte.SIZE;
      }
    }
    at += count;
  }

  private void halfTails(byte[] target, int fixed, int from, int to) throws IOException {
    int next = at;
    int all = 0;
    for (int row = from; row < to; row++) {
      int tail = rowsAt[row + 1] - LENGTH_BYTES;
      for (int word = rowsAt[row] + fixed; word < tail; word += HalfBytes.STEP) {
        int first = pairs[source[next] & 0xff];
        int second = pairs[source[next + 1] & 0xff];
        int third = pairs[source[next + 2] & 0xff];
        int fourth = pairs[source[next + 3] & 0xff];
        all |= first | second | third | fourth;
        LITTLE.set(target, word, (long) (second << Short.SIZE | first) & 0xffffffffL
            | (long) (fourth << Short.SIZE | third) << Integer.SIZE);
        next += HalfBytes.STEP / 2;
      }
    }
    at = next;
    if (all < 0) {
      throw RowCodec.malformed("half bytes of its variable parts are not in their table");
    }
  }

  /** Reads what goes before the values of each column, and finds these. */
  private void columns(int count) throws IOException {
    check((long) LEAST_COLUMN * count <= end - at, "columns", count);
    if (columns.length < count) {
      columns = Arrays.copyOf(columns, count);
    }
    for (int number = 0; number < count; number++) {
      if (columns[number] == null) {
        columns[number] = new Column();
      }
      Column column = columns[number];
      int kind = next();
      column.kind = kind >> 4;
      column.width = kind & 0xf;
      check(column.width <= Long.BYTES, "bytes of each value", column.width);
      switch (column.kind) {
        case FRAME -> {
          column.least = Numbers.signed(number());
          column.next = skip(column.width);
        }
        case DIFFERENCES -> {
          column.value = Numbers.signed(number());
          column.least = Numbers.signed(number());
          column.next = skip(column.width, rows - 1) - column.width; // the first row has its value already
          column.value -= column.least;
        }
        case HALVES -> {
          column.lowWidth = next();
          int widest = Math.max(column.width, column.lowWidth);
          check(widest <= LONGEST_HALF, "bytes of half a value", widest);
          column.least = Numbers.signed(number());
          column.leastLow = number();
          column.next = skip(column.width);
          column.nextLow = skip(column.lowWidth);
        }
        default -> throw RowCodec.malformed("it has a column of the unknown kind " + column.kind);
      }
    }
  }

  private void fill(byte[] target, int number, int from, int to) {
    Column column = columns[number];
    int offset = Long.BYTES * number;
    switch (column.kind) {
      case FRAME -> frame(target, column, offset, from, to);
      case DIFFERENCES -> differences(target, column, offset, from, to);
      default -> halves(target, column, offset, from, to);
    }
  }

  private void frame(byte[] target, Column column, int offset, int from, int to) {
    long least = column.least;
    int width = column.width;
    int next = column.next;
    if (width == 0) {
      for (int row = from; row < to; row++) {
        WORD.set(target, rowsAt[row] + offset, least);
      }
      return;
    }
    long mask = mask(width);
    for (int row = from; row < to; row++) {
      WORD.set(target, rowsAt[row] + offset, least + ((long) LITTLE.get(source, next) & mask));
      next += width;
    }
    column.next = next;
  }

  private void differences(byte[] target, Column column, int offset, int from, int to) {
    long least = column.least;
    int width = column.width;
    int next = column.next;
    long value = column.value;
    long mask = mask(width);
    for (int row = from; row < to; row++) {
      value += least + (row == 0 ? 0 : (long) LITTLE.get(source, next) & mask);
      WORD.set(target, rowsAt[row] + offset, value);
      next += width;
    }
    column.next = next;
    column.value = value;
  }

  private void halves(byte[] target, Column column, int offset, int from, int to) {
    long leastHigh = column.least;
    long leastLow = column.leastLow;
    int high = column.next;
    int low = column.nextLow;
    long highMask = mask(column.width);
    long lowMask = mask(column.lowWidth);
    for (int row = from; row < to; row++) {
      long upper = leastHigh + ((long) LITTLE.get(source, high) & highMask);
      long lower = leastLow + ((long) LITTLE.get(source, low) & lowMask);
      WORD.set(target, rowsAt[row] + offset, (upper << HALF) + lower);
      high += column.width;
      low += column.lowWidth;
    }
    column.next = high;
    column.nextLow = low;
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

  /** A column, and where its values go on. */
  private static final class Column {
    private int kind;
    private int width;
    private int lowWidth;
    private long least;
    private long leastLow;
    private long value;
    private int next;
    private int nextLow;
  }
}
