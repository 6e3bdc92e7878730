package org.apache.spark.shuffle.flight.rows;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Random;

/** Rows as {@link RowBuffers} lays them out, for tests: null bits, a word a field, and a variable part. */
final class RandomRows {
  private static final int KINDS = 9;

  /** Of texts, at most: more than are written as half bytes. */
  private static final int LETTERS = 24;

  private final int fields;
  private int letters = 4;
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

  RandomRows(int fields) {
    this.fields = fields;
  }

  /** Rows of about {@code length} bytes, each field of a kind that {@code seed} picks; at least one row. */
  static RandomRows of(int fields, long seed, int length) {
    RandomRows rows = new RandomRows(fields);
    Random random = new Random(seed);
    int[] kinds = random.ints(fields, 0, KINDS).toArray();
    boolean nulls = random.nextBoolean();
    rows.letters = 1 + random.nextInt(LETTERS);
    long number = 0;
    while (number == 0 || rows.bytes.size() < length && number < 20_000) {
      rows.addRandom(kinds, nulls, number++, random);
    }
    return rows;
  }

  private void addRandom(int[] kinds, boolean nulls, long number, Random random) {
    byte[] tail = new byte[0];
    long[] values = new long[fields];
    long[] nullBits = new long[(fields + 63) / 64];
    for (int field = 0; field < fields; field++) {
      if (nulls && random.nextInt(10) == 0) {
        nullBits[field / 64] |= 1L << field;
        continue;
      }
      switch (kinds[field]) {
        case 0 -> values[field] = 42;
        case 1 -> values[field] = number + 1000L * field;
        case 2 -> values[field] = random.nextInt(3000) - 1500;
        case 3 -> values[field] = random.nextLong();
        case 4 -> values[field] = Double.doubleToRawLongBits(random.nextInt(10_000) / 100.0);
        case 5 -> values[field] = number * number * (field % 2 == 0 ? 1 : -1);
        case 6 -> values[field] = random.nextBoolean() ? Long.MIN_VALUE : Long.MAX_VALUE;
        case 7 -> values[field] = random.nextInt(20) - 10L << random.nextInt(60);
        default -> {
          int size = random.nextInt(40);
          values[field] = (8L * (nullBits.length + fields) + tail.length) << 32 | size;
          byte[] text = new byte[tail.length + (size + 7) / 8 * 8];
          System.arraycopy(tail, 0, text, 0, tail.length);
          for (int i = 0; i < size; i++) {
            text[tail.length + i] = (byte) ('a' + random.nextInt(letters));
          }
          tail = text;
        }
      }
    }
    add(nullBits, values, tail);
  }

  /** A row without nulls. */
  RandomRows add(long... values) {
    return add(new long[(fields + 63) / 64], values, new byte[0]);
  }

  RandomRows addWithTail(byte[] tail, long... values) {
    return add(new long[(fields + 63) / 64], values, tail);
  }

  private RandomRows add(long[] nullBits, long[] values, byte[] tail) {
    int size = 8 * (nullBits.length + fields) + tail.length;
    ByteBuffer row = ByteBuffer.allocate(4 + size).putInt(size).order(ByteOrder.nativeOrder());
    for (long word : nullBits) {
      row.putLong(word);
    }
    for (long value : values) {
      row.putLong(value);
    }
    row.put(tail);
    bytes.writeBytes(row.array());
    return this;
  }

  /** Bytes so far. */
  int size() {
    return bytes.size();
  }

  byte[] toBytes() {
    return bytes.toByteArray();
  }
}
