package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;
import java.util.function.LongUnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ColumnPackerTest {
  private static final int ROWS = 1000;

  /** Rows of one field whose values {@code value} gives by row. */
  private static byte[] column(LongUnaryOperator value) {
    RandomRows rows = new RandomRows(1);
    for (long row = 0; row < ROWS; row++) {
      rows.add(value.applyAsLong(row));
    }
    return rows.toBytes();
  }

  private static byte[] packed(byte[] rows, int words) {
    ColumnPacker packer = new ColumnPacker(words);
    int length = packer.pack(rows, rows.length);
    return length <= 0 ? null : Arrays.copyOf(packer.packed(), length);
  }

  private static byte[] unpacked(byte[] packed, int rawLength) throws IOException {
    byte[] rows = new byte[rawLength];
    new ColumnUnpacker().unpack(Arrays.copyOf(packed, packed.length + ColumnUnpacker.SLACK), packed.length, rows, rawLength);
    return rows;
  }

  /** Bytes for each value of a column beyond the few that say how they are written. */
  private static double bytesPerValue(LongUnaryOperator value) throws IOException {
    byte[] rows = column(value);
    byte[] packed = packed(rows, 2);
    assertArrayEquals(rows, unpacked(packed, rows.length));
    double bytes = packed.length / (double) ROWS;
    assertTrue(bytes - Math.floor(bytes) < 0.05, "little more than the values");
    return Math.floor(bytes);
  }

  @Test
  void valuesTakeTheFewestBytesOfAllWays() throws IOException {
    Random random = new Random(7);
    assertEquals(0, bytesPerValue(row -> -12345678901L), "constant");
    assertEquals(0, bytesPerValue(row -> Long.MAX_VALUE - 5 + 3 * row), "rises by as much, past the largest number");
    assertEquals(1, bytesPerValue(row -> Long.MIN_VALUE + random.nextInt(256)), "a frame of one byte");
    assertEquals(2, bytesPerValue(row -> 1_000_000 + random.nextInt(60_000)), "of two");
    assertEquals(7, bytesPerValue(row -> random.nextLong() >>> 8), "of seven");
    assertEquals(8, bytesPerValue(row -> random.nextLong()), "as they are");
    assertEquals(1, bytesPerValue(row -> row * row / 8), "differences");
    assertEquals(2, bytesPerValue(row -> (long) random.nextInt(100) << 32 | random.nextInt(100)), "halves apart");
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2, 63, 64, 65, 300, 1500})
  void rowsOfAnyFieldsComeBack(int fields) throws IOException {
    for (long seed = 0; seed < 40; seed++) {
      RandomRows rows = RandomRows.of(fields, seed, 60_000);
      byte[] raw = rows.toBytes();
      byte[] packed = packed(raw, ColumnPacker.words(fields));
      if (packed != null) {
        assertTrue(packed.length <= raw.length, "not longer");
        assertArrayEquals(raw, unpacked(packed, raw.length), fields + " fields, seed " + seed);
      }
    }
  }

  @Test
  void onePackerPacksBuffersOfAnySize() throws IOException {
    ColumnPacker packer = new ColumnPacker(ColumnPacker.words(5));
    ColumnUnpacker unpacker = new ColumnUnpacker();
    int packedOnes = 0;
    for (long seed = 0; seed < 300; seed++) {
      byte[] raw = RandomRows.of(5, seed, 1 + (int) (seed * 7919 % 30_000)).toBytes();
      int length = packer.pack(raw, raw.length);
      if (length > 0) {
        byte[] back = new byte[raw.length];
        unpacker.unpack(Arrays.copyOf(packer.packed(), length + ColumnUnpacker.SLACK), length, back, raw.length);
        assertArrayEquals(raw, back, "seed " + seed);
        packedOnes++;
      }
    }
    assertTrue(packedOnes > 100);
  }

  @Test
  void whatIsNoColumnStaysAsItIs() {
    byte[] one = RandomRows.of(3, 1, 1).toBytes();
    assertEquals(ColumnPacker.ALONE, new ColumnPacker(4).pack(one, one.length), "a row alone");
    byte[] large = new byte[ColumnPacker.LONGEST + 8];
    assertEquals(ColumnPacker.ALONE, new ColumnPacker(0).pack(large, large.length), "larger than any buffer");
    Random random = new Random(3);
    byte[] random8 = column(row -> random.nextLong());
    assertTrue(packed(random8, 2).length < random8.length / 2 + 100, "its null bits and lengths are nothing");
    RandomRows texts = new RandomRows(1);
    for (int row = 0; row < 20; row++) {
      byte[] text = new byte[2000];
      random.nextBytes(text);
      texts.addWithTail(text, 0);
    }
    assertEquals(0, new ColumnPacker(2).pack(texts.toBytes(), texts.toBytes().length), "hardly shorter");
    byte[] wrong = column(row -> 0);
    assertEquals(0, new ColumnPacker(3).pack(wrong, wrong.length), "rows of fewer words");
  }

  /** Rows of one text each, whose bytes are among {@code symbols}; those of the last row are others if it is said so. */
  private static byte[] texts(String symbols, String last) {
    Random random = new Random(5);
    RandomRows rows = new RandomRows(1);
    for (int row = 0; row < ROWS; row++) {
      byte[] text = new byte[8 * (1 + random.nextInt(8))];
      String among = row == ROWS - 1 ? last : symbols;
      for (int i = 0; i < text.length; i++) {
        text[i] = (byte) among.charAt(random.nextInt(among.length()));
      }
      rows.addWithTail(text, 16L << 32 | text.length);
    }
    return rows.toBytes();
  }

  @ParameterizedTest
  @ValueSource(strings = {"0123456789abcdef", "0123456789-:. ", "x", "\u0080\u00ff\u0000"})
  void textsOfFewSymbolsTakeHalfAByteForEach(String symbols) throws IOException {
    for (String last : new String[] {symbols, symbols.substring(1) + "#"}) { // the table grows in the last row
      byte[] raw = texts(symbols, last.isEmpty() ? symbols : last);
      byte[] packed = packed(raw, 2);
      assertArrayEquals(raw, unpacked(packed, raw.length));
      boolean half = symbols.length() < HalfBytes.MOST_SYMBOLS || last.equals(symbols);
      int tails = raw.length - ROWS * (4 + 16);
      int beside = packed.length - (half ? tails / 2 : tails);
      assertTrue(beside > 0 && beside < 2 * ROWS + 40, symbols + ", " + last + ": " + beside);
    }
  }

  @Test
  void textsOfMoreSymbolsStayAsTheyAre() throws IOException {
    byte[] raw = texts("0123456789abcdefg", "0");
    byte[] packed = packed(raw, 2);
    assertArrayEquals(raw, unpacked(packed, raw.length));
    assertTrue(packed.length > raw.length - ROWS * (4 + 16), "nothing is half a byte");
  }

  @Test
  void shortTextsStayAsTheyAre() throws IOException {
    byte[] raw = new RandomRows(1).addWithTail(new byte[16], 1).addWithTail(new byte[16], 1).toBytes();
    byte[] packed = packed(raw, 2);
    assertArrayEquals(raw, unpacked(packed, raw.length));
    assertEquals(32, packed.length - (2 + 2 + 2 * 2), "the table of half bytes would take as much as it saves");
  }

  @Test
  void halfBytesThatStandForNothingAreAnError() throws IOException {
    // two rows of one word and a variable part of one word, half bytes; the table, then four bytes a row
    byte[] right = bytes(2, 1, 0x10, 2, 0, 6, 2, 'a', 'b', 0x10, 0, 0, 0x11, 1, 1, 1, 1);
    byte[] rows = unpacked(right, 40);
    assertEquals("abaaaabb", new String(rows, 12, 8, StandardCharsets.US_ASCII));
    assertEquals("babababa", new String(rows, 32, 8, StandardCharsets.US_ASCII));
    for (int[] change : new int[][] {{6, 0}, {6, 17}, {6, 1}, {6, 3}, {9, 2}, {16, 0x20}, {2, 0}, {2, 0x30}}) {
      byte[] wrong = right.clone();
      wrong[change[0]] = (byte) change[1];
      IOException found = assertThrows(IOException.class, () -> unpacked(wrong, 40), Arrays.toString(change));
      assertTrue(found.getMessage().contains("malformed"));
    }
  }

  @Test
  void memoryIsNoLessThanWhatItTakes() {
    for (int words : new int[] {0, 2, 9, 1024}) {
      long memory = ColumnPacker.memory(100_000, words);
      long rows = 100_000 / (4 + 8 * words);
      assertTrue(memory >= 100_000 + 20 * rows && memory <= 100_200 + 20 * rows, words + " words: " + memory);
    }
  }

  /** Whether bytes unpack, whatever they are; else the error is the typed one. Nothing behind the rows is written. */
  private static boolean unpacks(byte[] packed, int rawLength) {
    byte[] target = new byte[rawLength + 64];
    Arrays.fill(target, rawLength, target.length, (byte) 0x55);
    boolean right = true;
    try {
      byte[] slack = Arrays.copyOf(packed, packed.length + ColumnUnpacker.SLACK);
      new ColumnUnpacker().unpack(slack, packed.length, target, rawLength);
    } catch (IOException e) {
      assertTrue(e.getMessage().contains("malformed"), e.getMessage());
      right = false;
    }
    for (int i = rawLength; i < target.length; i++) {
      assertEquals(0x55, target[i], "behind the end");
    }
    return right;
  }

  @Test
  void damagedBytesAreAnErrorOrOtherRows() {
    Random random = new Random(11);
    int errors = 0;
    int tries = 40_000;
    for (int i = 0; i < tries; i++) {
      int fields = random.nextInt(12);
      byte[] raw = RandomRows.of(fields, i % 200, 2000).toBytes();
      byte[] packed = packed(raw, ColumnPacker.words(fields));
      if (packed == null) {
        continue;
      }
      int rawLength = raw.length;
      switch (random.nextInt(5)) {
        case 0 -> packed = Arrays.copyOf(packed, random.nextInt(packed.length));
        case 1 -> rawLength = random.nextInt(2 * rawLength);
        case 2 -> random.nextBytes(packed);
        default -> {
          for (int damage = 1 + random.nextInt(3); damage > 0; damage--) {
            packed[random.nextInt(Math.min(packed.length, 1 + random.nextInt(packed.length)))] = (byte) random.nextInt();
          }
        }
      }
      errors += unpacks(packed, rawLength) ? 0 : 1;
    }
    assertTrue(errors > tries / 4, "they are found: " + errors);
  }

  private static byte[] bytes(int... values) {
    byte[] bytes = new byte[values.length];
    for (int i = 0; i < values.length; i++) {
      bytes[i] = (byte) values[i];
    }
    return bytes;
  }

  @Test
  void lengthsAreCheckedBeforeAnythingIsMadeByThem() throws IOException {
    // rows, words, the lengths of variable parts (kind, least), then a column: kind, least
    byte[] right = bytes(2, 1, 0, 0, 0, 6);
    assertArrayEquals(bytes(0, 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0), unpacked(right, 24));
    byte[][] wrong = {
      {}, bytes(0), bytes(2), bytes(0, 1, 0, 0, 0, 6), // no rows
      bytes(0xff, 0xff, 0xff, 0xff, 7, 1, 0, 0, 0, 6), // 2^31 - 1 rows
      bytes(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 0, 0, 0, 6), // -1 rows
      bytes(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 0, 0, 0, 6), // a number without an end
      bytes(3, 1, 0, 0, 0, 6), bytes(1, 1, 0, 0, 0, 6), // other rows than the bytes are
      bytes(2, 2, 0, 0, 0, 6), bytes(2, 0, 0, 0, 0, 6), bytes(2, 0xff, 0xff, 0xff, 0xff, 0xff, 7, 0, 0, 0, 6), // other words
      bytes(2, 1, 0, 1, 0, 6), bytes(2, 1, 0, 2, 0, 6), // lengths below zero, or too large
      bytes(2, 1, 5, 0, 0, 6), bytes(2, 1, 0x10, 0, 0, 6), bytes(2, 1, 1, 0, 0, 6), // of a kind that lengths do not have
      bytes(2, 1, 0, 0, 9, 6), bytes(2, 1, 0, 0, 0x30, 6), bytes(2, 1, 0, 0, 0xf0, 6), // columns of no kind
      bytes(2, 1, 0, 0, 8, 6, 1, 2), bytes(2, 1, 0, 0, 0x18, 6, 0, 1), // values that are not there
      bytes(2, 1, 0, 0, 0x25, 0, 0, 0), bytes(2, 1, 0, 0, 0x20, 5, 0, 0), // halves of more than that
      bytes(2, 1, 0, 0, 0, 6, 0), bytes(2, 1, 0, 0, 0) // bytes that nobody asked for, too few
    };
    for (byte[] each : wrong) {
      IOException found = assertThrows(IOException.class, () -> unpacked(each, 24), Arrays.toString(each));
      assertTrue(found.getMessage().contains("malformed"));
    }
  }
}
