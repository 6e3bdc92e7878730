package org.apache.spark.shuffle.flight.local;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Blocks of several map outputs out of one file, in which they lie by partition. */
class FileBlocksTest {
  /** By partition, then by map. */
  private static final List<String> PAYLOADS = List.of("p3m1", "p3m2-longer", "p4m1", "", "p5m1-", "p5m2");

  private static final long MOST = 1000;

  @TempDir Path directory;

  private final Map<String, String> given = new TreeMap<>();

  private final BlockFetchingListener listener =
      new BlockFetchingListener() {
        @Override
        public void onBlockFetchSuccess(String block, ManagedBuffer data) {
          try {
            given.put(block, UTF_8.decode(data.nioByteBuffer()).toString());
          } catch (IOException e) {
            throw new AssertionError(e);
          }
        }

        @Override
        public void onBlockFetchFailure(String block, Throwable why) {
          throw new AssertionError(block, why);
        }
      };

  private Path file() throws IOException {
    return Files.write(directory.resolve("x.compacted"), ("head" + String.join("", PAYLOADS)).getBytes(UTF_8));
  }

  private static List<WantedBlock> wanted(String... ids) {
    return Stream.of(ids).map(id -> WantedBlock.parse(id, LongUnaryOperator.identity())).toList();
  }

  /** The rows of payloads number {@code numbers}, in this order. */
  private static ByteBuffer rows(Integer... numbers) {
    ByteBuffer rows = ByteBuffer.allocate(numbers.length * FileIndex.ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    for (int number : numbers) {
      byte[] payload = PAYLOADS.get(number).getBytes(UTF_8);
      long offset = 4 + PAYLOADS.subList(0, number).stream().mapToInt(String::length).sum();
      CRC32C crc = new CRC32C();
      crc.update(payload);
      rows.putInt(3 + number / 2).putInt((int) crc.getValue()).putLong(payload.length).putLong(payload.length);
      rows.putLong(1).putLong(offset);
    }
    return rows.flip();
  }

  private static int[] ends(int... counts) {
    List<Integer> ends = new ArrayList<>();
    int end = 0;
    for (int count : counts) {
      end += count * FileIndex.ROW_BYTES;
      ends.add(end);
    }
    return ends.stream().mapToInt(Integer::intValue).toArray();
  }

  @Test
  void onePartitionOfSeveralMaps() throws IOException {
    List<WantedBlock> both = wanted("shuffle_7_1_3", "shuffle_7_2_3");
    assertEquals(15, FileBlocks.give(both, file(), rows(0, 1), ends(1, 1), MOST, listener));
    assertEquals(Map.of("shuffle_7_1_3", "p3m1", "shuffle_7_2_3", "p3m2-longer"), given);
  }

  @Test
  void severalPartitionsOfSeveralMapsWhichLieBetweenEachOther() throws IOException {
    List<WantedBlock> both = wanted("shuffle_7_1_3_6", "shuffle_7_2_3_6");
    FileBlocks.give(both, file(), rows(0, 2, 4, 1, 3, 5), ends(3, 3), MOST, listener);
    assertEquals(Map.of("shuffle_7_1_3_6", "p3m1p4m1p5m1-", "shuffle_7_2_3_6", "p3m2-longerp5m2"), given);
  }

  @Test
  void mapsInAnotherOrderThanInTheFile() throws IOException {
    List<WantedBlock> both = wanted("shuffle_7_2_3", "shuffle_7_1_3");
    FileBlocks.give(both, file(), rows(1, 0), ends(1, 1), MOST, listener);
    assertEquals(Map.of("shuffle_7_1_3", "p3m1", "shuffle_7_2_3", "p3m2-longer"), given);
  }

  @Test
  void rowsOfSomethingElseAreRefusedAndSoIsAChangedByte() throws IOException {
    List<WantedBlock> both = wanted("shuffle_7_1_3", "shuffle_7_2_3");
    Path file = file();
    assertThrows(IOException.class, () -> FileBlocks.give(both, file, rows(0, 2), ends(1, 1), MOST, listener));
    assertThrows(IOException.class, () -> FileBlocks.give(both, file, rows(0), ends(1, 0), MOST, listener));
    assertThrows(IOException.class, () -> FileBlocks.give(both, file, rows(0, 1, 2), ends(1, 1), MOST, listener));
    byte[] bytes = Files.readAllBytes(file);
    bytes[10] ^= 1;
    Files.write(file, bytes);
    assertThrows(IOException.class, () -> FileBlocks.give(both, file, rows(0, 1), ends(1, 1), MOST, listener));
    assertEquals(Map.of(), given);
  }
}
