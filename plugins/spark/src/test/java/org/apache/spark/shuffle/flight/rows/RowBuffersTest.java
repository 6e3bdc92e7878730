package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.SparkConf;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.junit.jupiter.api.Test;

class RowBuffersTest {
  private static final int BUFFER = 1 << 10;
  private static final int PARTITIONS = 7;

  private final Map<Integer, ByteArrayOutputStream> written = new TreeMap<>();
  private final List<Integer> lengths = new ArrayList<>();

  private static TaskMemoryManager memory(long bytes) {
    SparkConf conf = new SparkConf(false).set("spark.testing", "true");
    return new TaskMemoryManager(new UnifiedMemoryManager(conf, bytes, 0, 1), 0);
  }

  private RowBuffers buffers(TaskMemoryManager memory) {
    return buffers(memory, BUFFER);
  }

  private RowBuffers buffers(TaskMemoryManager memory, int size) {
    return new RowBuffers(
        memory, PARTITIONS, size,
        (partition, rows, length, count) -> {
          assertEquals(rowsIn(rows, length), count);
          written.computeIfAbsent(partition, p -> new ByteArrayOutputStream()).write(rows, 0, length);
          lengths.add(length);
        });
  }

  private static int rowsIn(byte[] rows, int length) {
    ByteBuffer bytes = ByteBuffer.wrap(rows, 0, length);
    int count = 0;
    while (bytes.hasRemaining()) {
      int size = bytes.getInt();
      bytes.position(bytes.position() + size);
      count++;
    }
    return count;
  }

  /** One of random bytes, behind another in an array, or, as a sort has it, in a page of words. */
  private static UnsafeRow row(int words, long seed) {
    int size = 8 + 8 * words;
    byte[] bytes = new byte[2 * size];
    new Random(seed).nextBytes(bytes);
    UnsafeRow row = new UnsafeRow(words);
    if (seed % 2 == 0) {
      row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + size, size);
    } else {
      long[] page = new long[bytes.length / 8];
      Platform.copyMemory(bytes, Platform.BYTE_ARRAY_OFFSET, page, Platform.LONG_ARRAY_OFFSET, bytes.length);
      row.pointTo(page, Platform.LONG_ARRAY_OFFSET + size, size);
    }
    return row;
  }

  /** Appends rows of {@code sizes} words to partitions by turn; returns the bytes expected in each partition. */
  private Map<Integer, ByteArrayOutputStream> append(RowBuffers buffers, int rows, int largest) throws IOException {
    Map<Integer, ByteArrayOutputStream> expected = new TreeMap<>();
    Random random = new Random(rows);
    for (int i = 0; i < rows; i++) {
      UnsafeRow row = row(1 + random.nextInt(largest), i);
      int partition = random.nextInt(PARTITIONS);
      buffers.append(partition, row);
      DataOutputStream out = new DataOutputStream(expected.computeIfAbsent(partition, p -> new ByteArrayOutputStream()));
      out.writeInt(row.getSizeInBytes());
      row.writeToStream(out, new byte[4096]);
    }
    return expected;
  }

  private void assertWritten(Map<Integer, ByteArrayOutputStream> expected) {
    assertEquals(expected.keySet(), written.keySet());
    expected.forEach(
        (partition, bytes) ->
            assertTrue(Arrays.equals(bytes.toByteArray(), written.get(partition).toByteArray()), "partition " + partition));
  }

  @Test
  void rowsArriveByPartitionInTheirOrderInSparksFormat() throws IOException {
    TaskMemoryManager memory = memory(1 << 20);
    RowBuffers buffers = buffers(memory);
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 2000, 20);
    assertEquals(PARTITIONS * BUFFER, buffers.getUsed());
    buffers.handOnAll();
    assertWritten(expected);
    assertTrue(lengths.stream().allMatch(length -> length <= BUFFER));
    buffers.free();
    assertEquals(0, buffers.getUsed());
    assertEquals(0, memory.cleanUpAllAllocatedMemory());
  }

  @Test
  void buffersThatBeginSmallGrowAndCountAsMuchAsTheirArrays() throws IOException {
    int size = 50_000;
    TaskMemoryManager memory = memory(1 << 20);
    RowBuffers buffers = buffers(memory, size);
    buffers.append(0, row(1, 0));
    assertEquals(4 << 10, buffers.getUsed());
    buffers.handOnAll();
    written.clear();
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 4000, 100);
    assertEquals((long) PARTITIONS * size, buffers.getUsed());
    buffers.handOnAll();
    assertWritten(expected);
    assertTrue(lengths.stream().anyMatch(length -> length > size * 9 / 10), "they are filled");
    assertTrue(lengths.stream().allMatch(length -> length <= size));
    assertEquals((long) PARTITIONS * size, buffers.free());
    assertEquals(0, memory.cleanUpAllAllocatedMemory());
  }

  @Test
  void rowsAreHandedOnWhenTheyAreToBeFromThenOn() throws IOException {
    int size = 50_000;
    TaskMemoryManager memory = memory(1 << 20);
    RowBuffers buffers = buffers(memory, size);
    for (int limit : new int[] {BUFFER, 2 * size, 10 * BUFFER, 40}) {
      buffers.handOnAt(limit);
      written.clear();
      lengths.clear();
      Map<Integer, ByteArrayOutputStream> expected = append(buffers, 4000, 100);
      buffers.handOnAll();
      assertWritten(expected);
      int most = Math.max(4 + 8 + 8 * 100, Math.min(limit, size)); // a row is not cut
      assertTrue(lengths.stream().allMatch(length -> length <= most), "at most " + limit);
      assertTrue(lengths.stream().anyMatch(length -> length > most * 8 / 10), "they are filled to " + limit);
    }
    buffers.free();
    assertEquals(0, memory.cleanUpAllAllocatedMemory());
  }

  @Test
  void fullerBuffersThanFromNowOnAreHandedOnWithTheNextRow() throws IOException {
    RowBuffers buffers = buffers(memory(1 << 20), 50_000);
    for (int i = 0; i < 100; i++) {
      buffers.append(0, row(5, i));
    }
    buffers.handOnAt(BUFFER);
    assertEquals(List.of(), lengths);
    buffers.append(0, row(5, 100));
    assertEquals(List.of(100 * (4 + 8 + 8 * 5)), lengths);
    buffers.free();
  }

  @Test
  void rowLargerThanABufferGoesAloneAndInOrder() throws IOException {
    TaskMemoryManager memory = memory(1 << 20);
    RowBuffers buffers = buffers(memory);
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 300, 400);
    buffers.handOnAll();
    assertWritten(expected);
    assertTrue(lengths.stream().anyMatch(length -> length > BUFFER));
    buffers.free();
    assertEquals(0, memory.cleanUpAllAllocatedMemory());
  }

  @Test
  void memoryForTwoBuffersIsEnough() throws IOException {
    TaskMemoryManager memory = memory(2 * BUFFER);
    RowBuffers buffers = buffers(memory);
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 1000, 20);
    assertTrue(buffers.getUsed() <= 2 * BUFFER);
    buffers.handOnAll();
    assertWritten(expected);
    buffers.free();
    assertEquals(0, memory.cleanUpAllAllocatedMemory());
  }

  @Test
  void littleMemoryMakesBlocksSmallerAndNotOneOfEachRow() throws IOException {
    int size = 64 << 10;
    for (int share : new int[] {16 << 10, 8 << 10}) { // of a partition
      TaskMemoryManager memory = memory(PARTITIONS * share);
      RowBuffers buffers = buffers(memory, size);
      written.clear();
      lengths.clear();
      Map<Integer, ByteArrayOutputStream> expected = append(buffers, 20_000, 20);
      assertTrue(buffers.getUsed() <= PARTITIONS * share);
      buffers.handOnAll();
      assertWritten(expected);
      double mean = lengths.stream().mapToInt(length -> length).average().orElseThrow();
      assertTrue(mean > share / 4.0, "blocks of " + mean + " bytes with " + share + " for each partition");
      buffers.free();
      assertEquals(0, buffers.getUsed());
      assertEquals(0, memory.cleanUpAllAllocatedMemory());
    }
  }

  @Test
  void noMemoryAtAllIsEnough() throws IOException {
    TaskMemoryManager memory = memory(1); // Spark wants some
    RowBuffers buffers = buffers(memory);
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 100, 20);
    buffers.handOnAll();
    assertWritten(expected);
    assertEquals(0, buffers.getUsed());
  }

  @Test
  void anotherOperatorOfTheTaskGetsTheMemoryAndNoRowIsLost() throws IOException {
    TaskMemoryManager memory = memory(PARTITIONS * BUFFER);
    RowBuffers buffers = buffers(memory);
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 50, 20);
    long held = buffers.getUsed();
    assertTrue(held > 0);
    MemoryConsumer other =
        new MemoryConsumer(memory, BUFFER, MemoryMode.ON_HEAP) {
          @Override
          public long spill(long size, MemoryConsumer trigger) {
            return 0;
          }
        };
    assertEquals(PARTITIONS * BUFFER, other.acquireMemory(PARTITIONS * BUFFER));
    assertEquals(0, buffers.getUsed());
    assertWritten(expected);
    other.freeMemory(PARTITIONS * BUFFER);
  }

  @Test
  void anotherThreadOfTheTaskGetsNothing() throws Exception {
    RowBuffers buffers = buffers(memory(1 << 20));
    append(buffers, 50, 20);
    long[] freed = {-1};
    Thread thread =
        new Thread(
            () -> {
              try {
                freed[0] = buffers.spill(1, null);
              } catch (IOException e) {
                throw new AssertionError(e);
              }
            });
    thread.start();
    thread.join();
    assertEquals(0, freed[0]);
    assertTrue(buffers.getUsed() > 0);
    buffers.free();
  }

  @Test
  void reservedMemoryIsTheTasksUntilTheEnd() throws IOException {
    TaskMemoryManager memory = memory(4 * BUFFER);
    RowBuffers buffers = buffers(memory);
    assertFalse(buffers.reserve(5 * BUFFER));
    assertEquals(0, buffers.getUsed());
    assertTrue(buffers.reserve(BUFFER));
    Map<Integer, ByteArrayOutputStream> expected = append(buffers, 200, 20);
    assertTrue(buffers.getUsed() <= 4 * BUFFER);
    buffers.handOnAll();
    assertWritten(expected);
    buffers.free();
    assertEquals(BUFFER, buffers.getUsed());
    buffers.close();
    buffers.close();
    assertEquals(0, buffers.getUsed());
    assertEquals(0, memory.cleanUpAllAllocatedMemory());
  }
}
