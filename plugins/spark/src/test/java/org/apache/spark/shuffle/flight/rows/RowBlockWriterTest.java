package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import net.jpountz.lz4.LZ4BlockOutputStream;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RowBlockWriterTest {
  private static RowCodec codec(String name) {
    SparkConf conf = new SparkConf(false);
    return RowCodec.of(
        name.equals("none") ? conf.set("spark.shuffle.compress", "false") : conf.set("spark.io.compression.codec", name));
  }

  private static RowBlockWriter writer(String codec, int fields) {
    return new RowBlockWriter(codec(codec), codec(codec), new ColumnPacker(ColumnPacker.words(fields)));
  }

  /** A block by either way to make one, and that it takes no more than it said. */
  private static byte[] block(RowBlockWriter writer, byte[] rows, boolean inPlace) {
    writer.start(rows, rows.length);
    int most = writer.most();
    byte[] block;
    if (inPlace) {
      byte[] target = new byte[3 + most];
      Arrays.fill(target, 0, 3, (byte) 9);
      int length = writer.make(target, 3);
      assertArrayEquals(new byte[] {9, 9, 9}, Arrays.copyOf(target, 3));
      block = Arrays.copyOfRange(target, 3, 3 + length);
    } else {
      writer.make();
      block = Arrays.copyOf(writer.header(), writer.headerLength() + writer.size());
      System.arraycopy(writer.bytes(), 0, block, writer.headerLength(), writer.size());
    }
    assertEquals(writer.headerLength() + writer.size(), block.length);
    assertTrue(block.length <= most);
    assertTrue(block.length <= rows.length + RowHeader.BYTES, "never longer than the rows as they are");
    return block;
  }

  private static boolean isPacked(byte[] block) {
    int first = ByteBuffer.wrap(block).getInt();
    assertTrue(RowHeader.isMark(first));
    return (RowHeader.codec(first) & RowHeader.PACKED) != 0;
  }

  private static byte[] rowsOf(byte[] blocks) throws IOException {
    RowBlockReader reader = new RowBlockReader();
    ByteArrayInputStream stream = new ByteArrayInputStream(blocks);
    ByteArrayOutputStream rows = new ByteArrayOutputStream();
    while (reader.next(stream)) {
      rows.write(reader.rows(), 0, reader.length());
    }
    return rows.toByteArray();
  }

  private static byte[] texts(long seed, int rows) {
    Random random = new Random(seed);
    RandomRows texts = new RandomRows(1);
    for (int row = 0; row < rows; row++) {
      byte[] text = new byte[64];
      random.nextBytes(text);
      texts.addWithTail(text, row);
    }
    return texts.toBytes();
  }

  /** Rows of three fields whose fixed part is hardly anything. */
  private static byte[] longTexts() {
    Random random = new Random(1);
    RandomRows texts = new RandomRows(3);
    for (int row = 0; row < 10; row++) {
      byte[] text = new byte[2000];
      random.nextBytes(text);
      texts.addWithTail(text, 1, 2, row);
    }
    return texts.toBytes();
  }

  /** The same few rows of columns without order, again and again: LZ4 finds them whole, but not their columns. */
  private static byte[] sameRows(long seed) {
    Random random = new Random(3);
    long[][] few = new long[40][12];
    for (long[] row : few) {
      Arrays.setAll(row, field -> random.nextLong());
    }
    Random order = new Random(seed);
    RandomRows rows = new RandomRows(12);
    for (int row = 0; row < 600; row++) {
      rows.add(few[order.nextInt(few.length)]);
    }
    return rows.toBytes();
  }

  private static byte[] numbers(long seed) {
    Random random = new Random(seed);
    RandomRows rows = new RandomRows(3);
    for (int row = 0; row < 2000; row++) {
      rows.add(row, random.nextInt(50_000), Double.doubleToRawLongBits(random.nextInt(100_000) / 100.0));
    }
    return rows.toBytes();
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "lz4", "zstd"})
  void rowsComeBackWhateverTheyAre(String codec) throws IOException {
    for (int fields : new int[] {0, 1, 4, 30, 400}) {
      try (RowBlockWriter writer = writer(codec, fields)) {
        ByteArrayOutputStream blocks = new ByteArrayOutputStream();
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int i = 0; i < 60; i++) {
          byte[] rows = RandomRows.of(fields, i / 3, i % 7 == 0 ? 1 : 1000 * (i % 40)).toBytes();
          all.writeBytes(rows);
          blocks.writeBytes(block(writer, rows, i % 2 == 0));
          int frames = codec.equals("lz4") ? 21 * ((rows.length >> 15) + 2) : 0;
          assertTrue(writer.lengthInSpark(true) > 0 && writer.lengthInSpark(true) <= rows.length + frames);
        }
        assertArrayEquals(all.toByteArray(), rowsOf(blocks.toByteArray()), fields + " fields");
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "lz4", "zstd"})
  void numbersArePackedToLessThanTheCodecAloneMakes(String codec) {
    try (RowBlockWriter writer = writer(codec, 3);
        RowBlockWriter without = new RowBlockWriter(codec(codec), codec(codec), null)) {
      long packed = 0;
      long plain = 0;
      long told = 0;
      for (int i = 0; i < 100; i++) {
        byte[] rows = numbers(i);
        byte[] block = block(writer, rows, true);
        assertTrue(isPacked(block));
        packed += block.length;
        told += writer.lengthInSpark(true);
        byte[] other = block(without, rows, true);
        assertFalse(isPacked(other));
        plain += other.length;
      }
      assertTrue(packed < plain * 7 / 10, packed + " of " + plain);
      assertEquals(1, told / (double) plain, 0.1, "Spark plans with what would have been written");
    }
  }

  @Test
  void ofRowsThatAreNotPackedTheLengthIsExact() throws IOException {
    try (RowBlockWriter writer = writer("lz4", 12)) {
      for (int i = 0; i < 20; i++) {
        byte[] rows = Arrays.copyOf(sameRows(i), 30_000);
        assertFalse(isPacked(block(writer, rows, i % 2 == 0)));
        assertEquals(inSpark(rows), writer.lengthInSpark(true));
      }
    }
  }

  /** Keys that rise in steps of which one in a block may be long: then its columns take twice the bytes, LZ4's the same. */
  private static byte[] risingKeys(Random random) {
    RandomRows rows = new RandomRows(1);
    int most = random.nextBoolean() ? 60 : 900;
    int count = 500 + random.nextInt(4_000);
    long key = random.nextInt(1_000_000);
    for (int row = 0; row < count; row++) {
      key += 1 + random.nextInt(row == count / 2 ? most : 60);
      rows.add(key);
    }
    return rows.toBytes();
  }

  @Test
  void eachBlocksLengthIsCloseToThatOfSparksOwnStreamWhateverItsColumnsTake() throws IOException {
    Random random = new Random(5);
    try (RowBlockWriter writer = writer("lz4", 1)) {
      long told = 0;
      long real = 0;
      for (int i = 0; i < 400; i++) {
        byte[] rows = risingKeys(random);
        assertTrue(isPacked(block(writer, rows, true)));
        int length = writer.lengthInSpark(true);
        assertEquals(1, length / (double) inSpark(rows), 0.15, rows.length + " bytes");
        told += length;
        real += inSpark(rows);
      }
      assertEquals(1, told / (double) real, 0.02);
    }
  }

  /** The bytes that Spark writes. */
  private static int inSpark(byte[] rows) throws IOException {
    ByteArrayOutputStream stream = new ByteArrayOutputStream();
    try (OutputStream lz4 = new LZ4BlockOutputStream(stream, 32 << 10)) {
      lz4.write(rows);
    }
    return stream.size();
  }

  @Test
  void wayIsTriedAgainTheMoreRarelyTheLongerItLoses() {
    try (RowBlockWriter writer = writer("lz4", 3)) {
      // The first buffer is made both ways, and the ones after 1, 3, 7, 15, 31 and each 31 others.
      List<Integer> exact = new ArrayList<>();
      byte[] rows = numbers(1);
      for (int i = 0; i < 100; i++) {
        assertTrue(isPacked(block(writer, i == 50 ? longTexts() : rows, true)) == (i != 50));
        if (writer.isSample()) {
          exact.add(i);
        }
      }
      assertEquals(List.of(0, 2, 6, 14, 30, 62, 94), exact);
    }
    try (RowBlockWriter writer = writer("lz4", 12)) {
      List<Integer> tried = new ArrayList<>();
      for (int i = 0; i < 70; i++) {
        assertFalse(isPacked(block(writer, sameRows(i), true)));
        if (writer.isSample()) {
          tried.add(i);
        }
      }
      assertEquals(List.of(0, 2, 6, 14, 30, 62), tried);
    }
  }

  @Test
  void rowAloneSaysNothingOfTheOthers() {
    try (RowBlockWriter writer = writer("lz4", 3)) {
      for (int i = 0; i < 10; i++) {
        assertFalse(isPacked(block(writer, new RandomRows(3).add(1, 2, i).toBytes(), true)));
      }
      assertTrue(isPacked(block(writer, numbers(1), true)));
      assertFalse(isPacked(block(writer, new byte[ColumnPacker.LONGEST + 8], true)));
      assertTrue(isPacked(block(writer, numbers(1), true)));
    }
  }

  @Test
  void codecIsLeftOutWhereItGainsNothing() throws IOException {
    try (RowBlockWriter writer = writer("lz4", 1)) {
      byte[] rows = texts(1, 300);
      byte[] block = block(writer, rows, true);
      assertTrue(isPacked(block));
      assertEquals(RowCodec.STORED, RowHeader.codec(ByteBuffer.wrap(block).getInt()) & ~RowHeader.PACKED);
      assertTrue(block.length < rows.length * 9 / 10);
      assertArrayEquals(rows, rowsOf(block));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {36, 144, 20_000, 32 << 10, 70_000})
  void rowsHaveTheLengthOfSparksOwnStream(int bytes) throws IOException {
    byte[] rows = Arrays.copyOf(numbers(7), bytes);
    try (RowBlockWriter plain = new RowBlockWriter(codec("lz4"), codec("lz4"), null);
        RowBlockWriter stored = new RowBlockWriter(codec("none"), codec("none"), null)) {
      block(plain, rows, true);
      assertEquals(1, plain.lengthInSpark(true) / (double) inSpark(rows), rows.length > 32 << 10 ? 0.1 : 0);
      assertEquals(21, plain.lengthInSpark(true) - plain.lengthInSpark(false));
      block(stored, rows, true);
      assertEquals(rows.length, stored.lengthInSpark(true));
    }
  }

  @Test
  void ofAFewRowsTheLengthIsExact() throws IOException {
    try (RowBlockWriter writer = writer("lz4", 3)) {
      for (int count = 1; count < 28; count++) {
        byte[] rows = Arrays.copyOf(numbers(count), 36 * count);
        block(writer, rows, count % 2 == 0);
        assertEquals(inSpark(rows), writer.lengthInSpark(true));
      }
    }
  }

  @Test
  void manyRowsWithoutBytesOfTheirOwnAreAFewBytes() throws IOException {
    byte[] rows = new byte[4 * 30_000]; // without fields
    try (RowBlockWriter writer = writer("none", 0)) {
      byte[] block = block(writer, rows, true);
      assertTrue(block.length < 40);
      assertArrayEquals(rows, rowsOf(block));
      assertEquals(rows.length, writer.lengthInSpark(true));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "lz4", "zstd"})
  void damagedBlocksAreErrorsOrOtherRows(String codec) {
    Random random = new Random(9);
    try (RowBlockWriter writer = writer(codec, 4)) {
      int errors = 0;
      int tries = 4_000;
      for (int i = 0; i < tries; i++) {
        byte[] block = block(writer, RandomRows.of(4, i % 50, 1500).toBytes(), true);
        int range = random.nextBoolean() ? RowHeader.PACKED_BYTES + 8 : block.length;
        block[random.nextInt(Math.min(block.length, range))] = (byte) random.nextInt();
        byte[] damaged = random.nextInt(4) == 0 ? Arrays.copyOf(block, random.nextInt(block.length)) : block;
        try {
          rowsOf(damaged);
        } catch (IOException e) {
          errors++;
        }
      }
      assertTrue(errors > tries / 4, "they are found: " + errors);
    }
  }

  @Test
  void headerThatPromisesTooMuchIsRefusedBeforeItIsBelieved() {
    ByteBuffer header = ByteBuffer.allocate(RowHeader.PACKED_BYTES + 6);
    header.put(RowHeader.PACKED_BYTES, new byte[] {2, 1, 0, 0, 0, 6});
    int[][] wrong = { // codec, length, packed length, raw length
      {0, 6, 6, ColumnPacker.LONGEST + 1}, {0, 6, 6, Integer.MAX_VALUE}, {0, 6, 6, -1}, {0, 6, 6, 5},
      {0, 6, 7, 24}, {0, 7, 6, 24}, {0, 6, -6, 24}, {0, -6, -6, -24}, {0, 0, 0, 24}, {1, 6, 6 * 255 + 1, 10_000},
      {2, 6, 1 << 20, 1 << 20}, {3, 6, 6, 24}, {0xe, 6, 6, 24}
    };
    for (int[] each : wrong) {
      RowHeader.putPacked(header, each[0], each[1], each[3], each[2]);
      assertThrows(IOException.class, () -> rowsOf(header.array()), Arrays.toString(each));
    }
    RowHeader.putPacked(header, 0, 6, 24, 6);
    for (int length = 1; length < header.array().length; length++) {
      int cut = length;
      assertThrows(IOException.class, () -> rowsOf(Arrays.copyOf(header.array(), cut)), "cut at " + cut);
    }
  }
}
