package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockId;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import scala.Tuple2;
import scala.collection.JavaConverters;

class RowReaderTest {
  private static final int FIELDS = 1;

  private static RowCodec codec(String name) {
    SparkConf conf = new SparkConf(false);
    return RowCodec.of(
        name.equals("none") ? conf.set("spark.shuffle.compress", "false") : conf.set("spark.io.compression.codec", name));
  }

  /** Rows of one long each, as RowBuffers lays them out. */
  private static byte[] rows(int first, int end) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    for (int value = first; value < end; value++) {
      UnsafeRow row = UnsafeRow.createFromByteArray(16, FIELDS);
      row.setLong(0, value);
      out.writeInt(row.getSizeInBytes());
      out.write(row.getBytes());
    }
    return bytes.toByteArray();
  }

  private static void frame(DataOutputStream out, RowCodec codec, byte[] rows) throws IOException {
    int packed = codec.pack(rows, rows.length);
    boolean fewer = packed < rows.length;
    out.write(header(fewer ? codec.id() : RowCodec.STORED, packed, rows.length));
    out.write(fewer ? codec.packed() : rows, 0, packed);
  }

  private static byte[] header(int codec, int length, int rawLength) {
    ByteBuffer header = ByteBuffer.allocate(RowHeader.BYTES);
    RowHeader.put(header, codec, length, rawLength);
    return header.array();
  }

  private static byte[] buffer(int codec, int length, int rawLength, int... bytes) {
    byte[] header = header(codec, length, rawLength);
    byte[] all = Arrays.copyOf(header, header.length + bytes.length);
    for (int i = 0; i < bytes.length; i++) {
      all[header.length + i] = (byte) bytes[i];
    }
    return all;
  }

  private final List<BlockId> complaints = new ArrayList<>();

  private RowReader reader(byte[]... streams) {
    List<Tuple2<BlockId, InputStream>> blocks = new ArrayList<>();
    for (byte[] stream : streams) {
      blocks.add(new Tuple2<>(new ShuffleBlockId(0, blocks.size(), 0), new ByteArrayInputStream(stream)));
    }
    return new RowReader(
        JavaConverters.asScalaIterator(blocks.iterator()), FIELDS, (block, why) -> complaints.add(block));
  }

  private static byte[] stream(RowCodec codec, int... bounds) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    for (int i = 1; i < bounds.length; i++) {
      frame(out, codec, rows(bounds[i - 1], bounds[i]));
    }
    return bytes.toByteArray();
  }

  private static long value(RowReader reader) {
    return ((UnsafeRow) reader.next()._2()).getLong(0);
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "lz4", "zstd"})
  void rowsOfAllBuffersAndStreamsComeInOrder(String name) throws IOException {
    RowCodec codec = codec(name);
    RowReader reader =
        reader(stream(codec, 0, 1, 500, 501), stream(codec), stream(codec, 501, 3000));
    List<Long> found = new ArrayList<>();
    while (reader.hasNext()) {
      found.add(value(reader));
    }
    assertEquals(IntStream.range(0, 3000).asLongStream().boxed().toList(), found);
    assertFalse(reader.hasNext());
  }

  @Test
  void lastRowStaysValidWhileTheNextIsAskedFor() throws IOException {
    RowCodec codec = codec("lz4");
    RowReader reader = reader(stream(codec, 0, 1, 2), stream(codec, 2, 3, 4));
    for (int expected = 0; expected < 4; expected++) {
      UnsafeRow row = (UnsafeRow) reader.next()._2();
      reader.hasNext();
      reader.hasNext();
      assertEquals(expected, row.getLong(0));
    }
  }

  @Test
  void compressibleRowsShrink() throws IOException {
    for (String name : List.of("lz4", "zstd")) {
      RowCodec codec = codec(name);
      assertTrue(codec.pack(new byte[1000], 1000) < 100, name);
    }
  }

  @Test
  void whatHardlyShrinksIsSkimmedUntilOneShrinks() throws IOException {
    byte[] zeros = new byte[100_000];
    byte[] hex = new byte[100_000];
    java.util.Random random = new java.util.Random(5);
    for (int i = 0; i < hex.length; i++) {
      hex[i] = (byte) (i % 100 < 20 ? 0 : "0123456789abcdef".charAt(random.nextInt(16)));
    }
    List<Integer> sizes = new ArrayList<>();
    try (RowCodec codec = codec("lz4")) {
      for (int i = 0; i < 17; i++) {
        byte[] rows = i == 14 ? zeros : hex;
        int packed = codec.pack(rows, rows.length);
        byte[] back = new byte[rows.length];
        codec.unpack(codec.packed(), packed, back, rows.length);
        assertArrayEquals(rows, back);
        sizes.add(packed);
      }
      codec.close();
      codec.close();
      assertEquals(sizes.get(0), codec.pack(hex, hex.length), "as in the beginning");
    }
    assertTrue(sizes.get(0) < hex.length, "it shrinks");
    assertNotEquals(sizes.get(0), sizes.get(1), "it was skimmed");
    List<Integer> lookedThrough =
        IntStream.range(0, 17).filter(i -> sizes.get(i).equals(sizes.get(0))).boxed().toList();
    assertEquals(List.of(0, 2, 6, 15), lookedThrough, "and ever more after it; after one that shrinks, none");
  }

  @ParameterizedTest
  @ValueSource(strings = {"lz4", "zstd"})
  void whatDoesNotShrinkIsStoredUntriedUntilOneShrinks(String name) throws IOException {
    byte[] zeros = new byte[10_000];
    byte[] random = new byte[10_000];
    new java.util.Random(5).nextBytes(random);
    try (RowCodec codec = codec(name)) {
      // 1, 3, 7, 15 and 15 of what shrinks lie between those that do not, and pass for them. Then one is tried, and shrinks.
      int at = 0;
      for (int untried : List.of(1, 3, 7, 15, 15)) {
        assertEquals(random.length, codec.pack(random, random.length), name + " " + at++);
        for (int i = 0; i < untried; i++) {
          byte[] target = new byte[codec.most(zeros.length)];
          assertEquals(zeros.length, i % 2 == 0 ? codec.pack(zeros, zeros.length) : codec.pack(zeros, zeros.length, target, 0));
          at++;
        }
      }
      for (int i = 0; i < 3; i++) {
        assertTrue(codec.pack(zeros, zeros.length) < 100, "tried, and after it all are");
      }
      assertEquals(random.length, codec.pack(random, random.length));
      assertEquals(zeros.length, codec.pack(zeros, zeros.length));
      assertTrue(codec.pack(zeros, zeros.length) < 100, "it begins with one again");
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "lz4", "zstd"})
  void longBuffersAreWorthwhileAfterOneThatShrank(String name) throws IOException {
    byte[] zeros = new byte[10_000];
    byte[] random = new byte[10_000];
    new java.util.Random(5).nextBytes(random);
    try (RowCodec codec = codec(name)) {
      assertTrue(codec.littleRepeats(), "nothing is known");
      codec.pack(zeros, zeros.length);
      assertEquals(name.equals("none"), codec.littleRepeats());
      codec.pack(random, random.length);
      assertTrue(codec.littleRepeats());
      codec.pack(zeros, zeros.length);
      assertTrue(codec.littleRepeats(), "it was stored untried");
    }
  }

  @Test
  void whatShrinksALittleIsNotGivenUp() throws IOException {
    byte[] rows = new byte[16_000]; // a tenth zeros
    new java.util.Random(5).nextBytes(rows);
    Arrays.fill(rows, 0, 1_600, (byte) 0);
    for (String name : List.of("lz4", "zstd")) {
      try (RowCodec codec = codec(name)) {
        for (int i = 0; i < 40; i++) {
          assertTrue(codec.pack(rows, rows.length) < rows.length, name);
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "lz4", "zstd"})
  void packsBehindWhatIsThereAndNeedsNoMoreRoomThanItSaid(String name) throws IOException {
    RowCodec codec = codec(name);
    byte[] random = new byte[1000];
    new java.util.Random(3).nextBytes(random);
    for (byte[] rows : List.of(rows(0, 500), random, new byte[1])) {
      byte[] target = new byte[3 + codec.most(rows.length)];
      Arrays.fill(target, 0, 3, (byte) 9);
      int packed = codec.pack(rows, rows.length, target, 3);
      byte[] made = Arrays.copyOfRange(target, 3, 3 + packed);
      assertArrayEquals(new byte[] {9, 9, 9}, Arrays.copyOf(target, 3));
      if (packed < rows.length) {
        byte[] back = new byte[rows.length];
        codec.unpack(made, packed, back, rows.length);
        assertArrayEquals(rows, back);
      } else {
        assertArrayEquals(rows, made);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 11, 12, 13, 40, 200})
  void cutStreamIsAnErrorAndNotTheEnd(int length) throws IOException {
    RowCodec codec = codec("lz4");
    byte[] whole = stream(codec, 0, 500);
    RowReader reader = reader(Arrays.copyOf(whole, length));
    assertThrows(UncheckedIOException.class, reader::hasNext);
    assertEquals(List.of(new ShuffleBlockId(0, 0, 0)), complaints);
  }

  @Test
  void blockThatCannotBeReadIsNamed() throws IOException {
    RowReader reader = reader(stream(codec("lz4"), 0, 5), buffer(1, 5, 50, -1, -1, -1, -1, -1));
    for (int row = 0; row < 5; row++) {
      assertEquals(row, value(reader));
    }
    assertThrows(UncheckedIOException.class, reader::hasNext);
    assertEquals(List.of(new ShuffleBlockId(0, 1, 0)), complaints);
  }

  @Test
  void buffersOfSeveralCodecsCanFollowEachOther() throws IOException {
    RowReader reader = reader(stream(codec("lz4"), 0, 300), stream(codec("zstd"), 300, 600), stream(codec("none"), 600, 900));
    for (int row = 0; row < 900; row++) {
      assertEquals(row, value(reader));
    }
    assertFalse(reader.hasNext());
  }

  @Test
  void rowsLargerThanWhatIsKeptAreRead() throws IOException {
    for (String name : List.of("none", "lz4", "zstd")) {
      RowCodec codec = codec(name);
      int rows = RowCodec.KEPT / 10;
      RowReader reader = reader(stream(codec, 0, rows, rows + 1, rows + 2, 2 * rows, 3 * rows));
      for (int row = 0; row < 3 * rows; row++) {
        UnsafeRow found = (UnsafeRow) reader.next()._2();
        reader.hasNext();
        assertEquals(row, found.getLong(0), name);
      }
      assertFalse(reader.hasNext());
    }
  }

  static List<Arguments> malformed() {
    return List.of(
        Arguments.of("LZ4 that is none", buffer(1, 5, 50, -1, -1, -1, -1, -1)),
        Arguments.of("zstd that is none", buffer(2, 5, 50, -1, -1, -1, -1, -1)),
        Arguments.of("LZ4 that is shorter than it says", buffer(1, 2, 50, 0x10, 7)),
        Arguments.of("stored and not", buffer(0, 5, 50, 1, 2, 3, 4, 5)),
        Arguments.of("compressed to more", buffer(1, 9, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9)),
        Arguments.of("more than LZ4 can expand to", buffer(1, 5, 5 * 255 + 1, 1, 2, 3, 4, 5)),
        Arguments.of("more than zstd can expand to", buffer(2, 5, 5 * 32768 + 1, 1, 2, 3, 4, 5)),
        Arguments.of("more than a buffer compressed", buffer(2, 100_000, RowCodec.LARGEST + 1)),
        Arguments.of("cut, and too large for an array", buffer(0, Integer.MAX_VALUE, Integer.MAX_VALUE, 1, 2)),
        Arguments.of("no bytes", buffer(1, 0, 0)),
        Arguments.of("negative", buffer(0, -1, -1)),
        Arguments.of("an unknown codec", buffer(9, 5, 50, 1, 2, 3, 4, 5)),
        Arguments.of("another writer's", "LZ4Block and so on".getBytes(StandardCharsets.US_ASCII)),
        Arguments.of("a row behind the end", buffer(0, 20, 20, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
        Arguments.of("a row of less than its fields", buffer(0, 12, 12, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0)),
        Arguments.of("a negative row", buffer(0, 12, 12, -1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0)),
        Arguments.of("half a row's length", buffer(0, 3, 3, 0, 0, 0)));
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("malformed")
  void malformedBufferIsAnError(String what, byte[] bytes) {
    assertThrows(UncheckedIOException.class, reader(bytes)::next, what);
    assertEquals(1, complaints.size());
  }
}
