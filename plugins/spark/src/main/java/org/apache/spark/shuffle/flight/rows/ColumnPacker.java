package org.apache.spark.shuffle.flight.rows;

import static org.apache.spark.shuffle.flight.rows.RowFormat.LENGTH_BYTES;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Packs a buffer of rows by column: each word of the rows' fixed part becomes a run of values in as few bytes as they need,
 * behind one another, and then come the variable parts, as they are or as {@link HalfBytes}. plugins/spark/rows.md has the
 * bytes; {@link ColumnUnpacker} makes the rows again. One thread at a time.
 *
 * <p>Rows are words: null bits, a word for each field. A codec looks for repeats in them where there is arithmetic: numbers
 * of a column lie close to each other, or rise, and the word of a variable field is an offset and a size, two small numbers.
 */
public final class ColumnPacker {
  /** Longer buffers are not packed, and their readers need no more than that: only single rows are longer. */
  static final int LONGEST = RowCodec.KEPT;

  /** What {@link #pack} answers for what is no column: a row alone. */
  static final int ALONE = -1;

  static final VarHandle WORD = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());
  static final VarHandle LITTLE = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  static final VarHandle LENGTH = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);

  /** How the values of a column are written: the high half of its first byte. The low half is a width. */
  static final int FRAME = 0;

  static final int DIFFERENCES = 1;
  static final int HALVES = 2;

  /** In the first byte of the lengths of the variable parts: these are half bytes. */
  static final int IN_HALF_BYTES = 1 << 4;

  static final int HALF = 32;
  static final long LOW_HALF = 0xffffffffL;

  /** Rows that must become shorter by this part at least; then they are worth another pass. */
  private static final int LEAST_GAIN = 16;

  /** Values that show whether other ways than a frame can win. */
  private static final int SAMPLE = 16;

  /** Of the variable parts of so many rows, up to so many bytes each show whether half bytes may do. */
  private static final int SAMPLED_TAILS = 8;

  private static final int SAMPLED_BYTES = 64;

  /** The most bytes before the values of a column: two of kinds and two numbers. */
  private static final int COLUMN_HEADER = 2 + 2 * Numbers.LONGEST;

  private final int words;
  private int[] at = new int[0];
  private long[] values = new long[0];
  private byte[] packed = new byte[0];
  private final HalfBytes halfBytes = new HalfBytes();
  private int rows;
  private long leastHigh;
  private long leastLow;
  private int highWidth;
  private int lowWidth;

  /** @param words of a row's fixed part */
  public ColumnPacker(int words) {
    this.words = words;
  }

  /** The words of the fixed part of a row with {@code fields}. */
  public static int words(int fields) {
    return fields + (fields + 63) / 64;
  }

  /** Bytes that packing up to {@code length} bytes of rows of {@code words} needs. */
  public static long memory(int length, int words) {
    long most = most(length, words);
    return most * (Integer.BYTES + Long.BYTES) + room(length, most);
  }

  private static int most(int length, int words) {
    return length / (LENGTH_BYTES + Long.BYTES * words);
  }

  /** What is written before it is seen to be too long is a column at most. */
  private static long room(int length, long rows) {
    return length + Long.BYTES * rows + 2 * Numbers.LONGEST + COLUMN_HEADER + Long.BYTES;
  }

  /**
   * Packs the first {@code length} bytes of {@code rows}, lengths and rows as {@link RowBuffers} lays them out.
   *
   * @return how many bytes of {@link #packed} that makes; {@link #ALONE}, or 0 when it would hardly be shorter: then the
   *     rows stay as they are
   */
  public int pack(byte[] buffer, int length) {
    if (length > LONGEST) {
      return ALONE;
    }
    if (!find(buffer, length)) {
      return 0;
    }
    if (rows < 2) {
      return ALONE;
    }
    int limit = length - length / LEAST_GAIN;
    int tails = length - rows * (LENGTH_BYTES + Long.BYTES * words);
    boolean halves = HalfBytes.size(tails) < tails && fewSymbols(buffer);
    int kept = halves ? HalfBytes.size(tails) : tails;
    if (kept > limit) {
      return 0;
    }
    int lengths = Numbers.put(packed, Numbers.put(packed, 0, rows), words);
    int end = tailLengths(buffer, lengths);
    for (int word = 0; word < words; word++) {
      end = column(buffer, Long.BYTES * word, end);
      if (end > limit - kept) {
        return 0;
      }
    }
    if (tails == 0) {
      return end;
    }
    int all = halves ? halfTails(buffer, end) : -1;
    if (all >= 0) {
      packed[lengths] |= IN_HALF_BYTES;
      return all;
    }
    return end > limit - tails ? 0 : tails(buffer, end);
  }

  /** What {@link #pack} has made. It is written over by the next call. */
  public byte[] packed() {
    return packed;
  }

  /** Finds where the rows begin; false when they are none of these words. */
  private boolean find(byte[] buffer, int length) {
    int most = most(length, words);
    if (at.length < most) {
      at = new int[most];
      values = new long[most];
    }
    if (packed.length < room(length, most)) {
      packed = new byte[(int) room(length, most)];
    }
    int found = 0;
    int begin = 0;
    while (begin < length && found < most) {
      int size = (int) LENGTH.get(buffer, begin);
      if (size < Long.BYTES * words || size % Long.BYTES != 0) {
        return false;
      }
      at[found++] = begin + LENGTH_BYTES;
      begin += LENGTH_BYTES + size;
    }
    rows = found;
    return begin == length;
  }

  private int tailLengths(byte[] buffer, int end) {
    long least = Long.MAX_VALUE;
    long most = 0;
    for (int row = 0; row < rows; row++) {
      long tail = (int) LENGTH.get(buffer, at[row] - LENGTH_BYTES) / Long.BYTES - words;
      values[row] = tail;
      least = Math.min(least, tail);
      most = Math.max(most, tail);
    }
    return frame(end, least, width(most - least));
  }

  /** Whether some of the variable parts have so few different bytes that half of one may do for each. */
  private boolean fewSymbols(byte[] buffer) {
    halfBytes.clear();
    int step = Math.max(1, rows / SAMPLED_TAILS);
    for (int row = 0; row < rows; row += step) {
      if (!halfBytes.learn(buffer, at[row] + Long.BYTES * words, Math.min(tailLength(buffer, row), SAMPLED_BYTES))) {
        return false;
      }
    }
    return true;
  }

  private int tailLength(byte[] buffer, int row) {
    return (int) LENGTH.get(buffer, at[row] - LENGTH_BYTES) - Long.BYTES * words;
  }

  /** Writes the variable parts as half bytes; the end of them, or -1: they have too many different bytes. */
  private int halfTails(byte[] buffer, int end) {
    int fixed = Long.BYTES * words;
    int begin = end + 1 + HalfBytes.MOST_SYMBOLS;
    int next = begin;
    for (int row = 0; row < rows; row++) {
      int length = tailLength(buffer, row);
      int after = halfBytes.put(buffer, at[row] + fixed, length, packed, next);
      if (after < 0) {
        if (!halfBytes.learn(buffer, at[row] + fixed, length)) {
          return -1;
        }
        after = halfBytes.put(buffer, at[row] + fixed, length, packed, next);
      }
      next = after;
    }
    int table = halfBytes.putTable(packed, end);
    System.arraycopy(packed, begin, packed, table, next - begin);
    return table + next - begin;
  }

  private int tails(byte[] buffer, int end) {
    int fixed = Long.BYTES * words;
    int next = end;
    for (int row = 0; row < rows; row++) {
      int length = tailLength(buffer, row);
      System.arraycopy(buffer, at[row] + fixed, packed, next, length);
      next += length;
    }
    return next;
  }

  /** Writes the word at {@code offset} of all rows in the way that takes the fewest bytes; the end of it. */
  private int column(byte[] buffer, int offset, int end) {
    long least = Long.MAX_VALUE;
    long most = Long.MIN_VALUE;
    for (int row = 0; row < rows; row++) {
      long value = (long) WORD.get(buffer, at[row] + offset);
      values[row] = value;
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
    int width = width(most - least);
    if (width < 2) {
      return frame(end, least, width);
    }
    int sample = Math.min(rows, SAMPLE);
    int best = stepWidth(sample) < width ? Math.min(width, stepWidth(rows)) : width;
    if (halvesWidth(sample) < best && halvesWidth(rows) < best) {
      return halves(end);
    }
    if (best < width) {
      return differences(end, best);
    }
    return frame(end, width == Long.BYTES ? 0 : least, width);
  }

  /** Bytes of each of the first {@code count} values less the one before it, less the least of these. */
  private int stepWidth(int count) {
    long least = Long.MAX_VALUE;
    long most = Long.MIN_VALUE;
    for (int row = 1; row < count; row++) {
      long step = values[row] - values[row - 1];
      least = Math.min(least, step);
      most = Math.max(most, step);
    }
    return width(most - least);
  }

  /** Bytes of the two halves of each of the first {@code count} values together, which {@link #halves} writes. */
  private int halvesWidth(int count) {
    leastHigh = Long.MAX_VALUE;
    long mostHigh = Long.MIN_VALUE;
    leastLow = Long.MAX_VALUE;
    long mostLow = Long.MIN_VALUE;
    for (int row = 0; row < count; row++) {
      long high = values[row] >> HALF;
      long low = values[row] & LOW_HALF;
      leastHigh = Math.min(leastHigh, high);
      mostHigh = Math.max(mostHigh, high);
      leastLow = Math.min(leastLow, low);
      mostLow = Math.max(mostLow, low);
    }
    highWidth = width(mostHigh - leastHigh);
    lowWidth = width(mostLow - leastLow);
    return highWidth + lowWidth;
  }

  private int frame(int end, long least, int width) {
    packed[end] = (byte) (FRAME << 4 | width);
    return values(Numbers.putSigned(packed, end + 1, least), 0, least, width);
  }

  private int differences(int end, int width) {
    long first = values[0];
    long least = Long.MAX_VALUE;
    for (int row = rows - 1; row > 0; row--) {
      values[row] -= values[row - 1];
      least = Math.min(least, values[row]);
    }
    packed[end] = (byte) (DIFFERENCES << 4 | width);
    int next = Numbers.putSigned(packed, end + 1, first);
    return values(Numbers.putSigned(packed, next, least), 1, least, width);
  }

  /** As {@link #halvesWidth} has found them for all rows. */
  private int halves(int end) {
    packed[end] = (byte) (HALVES << 4 | highWidth);
    packed[end + 1] = (byte) lowWidth;
    int next = Numbers.putSigned(packed, end + 2, leastHigh);
    next = Numbers.put(packed, next, leastLow);
    for (int row = 0; row < rows; row++) {
      LITTLE.set(packed, next, (values[row] >> HALF) - leastHigh);
      next += highWidth;
    }
    for (int row = 0; row < rows; row++) {
      LITTLE.set(packed, next, (values[row] & LOW_HALF) - leastLow);
      next += lowWidth;
    }
    return next;
  }

  /** Writes all values from the one of {@code first} on less {@code least}: eight bytes each, over which the next one is written. */
  private int values(int end, int first, long least, int width) {
    if (width == 0) {
      return end;
    }
    int next = end;
    for (int row = first; row < rows; row++) {
      LITTLE.set(packed, next, values[row] - least);
      next += width;
    }
    return next;
  }

  /** The bytes that hold all numbers up to {@code most}, an unsigned one. */
  private static int width(long most) {
    return (Long.SIZE + 7 - Long.numberOfLeadingZeros(most)) >> 3;
  }
}
