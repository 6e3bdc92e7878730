package org.apache.spark.shuffle.flight.local;

import static org.apache.spark.shuffle.flight.local.OutputFile.batch;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class FileIndexCacheTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final long ROOM = 1 << 20;
  private static final ShuffleKey SHUFFLE = key(7, 1);

  @TempDir Path directory;

  private FileIndexCache.Known file(BlockBatch batch) throws IOException {
    return OutputFile.write(directory, batch);
  }

  private static final class Heard implements BlockFetchingListener {
    final List<String> texts = new ArrayList<>();

    @Override
    public void onBlockFetchSuccess(String block, ManagedBuffer data) {
      try {
        texts.add(StandardCharsets.UTF_8.decode(data.nioByteBuffer()).toString());
      } catch (IOException e) {
        throw new java.io.UncheckedIOException(e);
      }
    }

    @Override
    public void onBlockFetchFailure(String block, Throwable why) {
      throw new AssertionError(why);
    }
  }

  @Test
  void indexHasTheBlocksOfAPartitionInTheOrderOfWriting() throws IOException {
    FileIndex index = FileIndex.of(batch(3, "a", 0, "bc", 3, "def"));
    ByteBuffer three = index.between(3, 4);
    assertArrayEquals(new long[] {0, 1, 3, 3}, new long[] {
        three.getLong(32), three.getLong(8), three.getLong(FileIndex.ROW_BYTES + 32), three.getLong(FileIndex.ROW_BYTES + 8)});
    assertEquals(0, index.between(1, 3).limit());
    assertEquals(3 * FileIndex.ROW_BYTES, index.between(0, 9).limit());
  }

  @Test
  void indexInAnotherOrderIsRefused() {
    ByteBuffer backwards = ByteBuffer.allocate(2 * FileIndex.ROW_BYTES).order(java.nio.ByteOrder.LITTLE_ENDIAN);
    backwards.putInt(0, 1);
    assertThrows(IOException.class, () -> FileIndex.of(backwards));
    assertThrows(IOException.class, () -> FileIndex.of(ByteBuffer.allocate(FileIndex.ROW_BYTES + 1)));
  }

  @Test
  void whatIsKnownIsReadWithoutAskingAndForgottenWhenItIsNotSo() throws Exception {
    FileIndexCache.Known known = file(batch(3, "a", 0, "bc", 3, "def"));
    try (FakeWorker worker =
        new FakeWorker(
            call -> {
              throw new AssertionError("asked");
            })) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      localFiles.files().add(SHUFFLE, 0, known);
      LocalReader reader = new LocalReader(localFiles, SHUFFLE, () -> false);
      List<WantedBlock> three = List.of(new WantedBlock("shuffle_7_0_3", 0, 3, 4));
      List<WantedBlock> empty = List.of(new WantedBlock("shuffle_7_0_1", 0, 1, 2));
      List<WantedBlock> none = List.of();
      Heard heard = new Heard();
      assertEquals(three, reader.fromKnownFiles("another", three, ROOM, heard));
      assertEquals(three, reader.fromKnownFiles("w", three, 3, heard), "too large for now");
      assertEquals(none, reader.fromKnownFiles("w", three, ROOM, heard));
      assertEquals(List.of("adef"), heard.texts);
      assertEquals(empty, reader.fromKnownFiles("w", empty, ROOM, heard));
      localFiles.files().add(SHUFFLE, 0, known);

      Files.write(known.path(), "aBcdef".getBytes(StandardCharsets.UTF_8)); // a bit flip, in partition 0
      assertEquals(none, reader.fromKnownFiles("w", three, ROOM, heard));
      List<WantedBlock> flipped = List.of(new WantedBlock("shuffle_7_0_0", 0, 0, 1));
      assertEquals(flipped, reader.fromKnownFiles("w", flipped, ROOM, heard));
      assertNull(localFiles.files().find(SHUFFLE, 0, "w"));

      localFiles.files().add(SHUFFLE, 0, known);
      Files.delete(known.path());
      assertEquals(three, reader.fromKnownFiles("w", three, ROOM, heard));
      assertNull(localFiles.files().find(SHUFFLE, 0, "w"));
      assertEquals(List.of("adef", "adef"), heard.texts);
    }
  }

  @Test
  void runsOfPartitionsAreReadTogetherAndGivenOneByOne() throws Exception {
    try (FakeWorker worker =
        new FakeWorker(
            call -> {
              throw new AssertionError("asked");
            })) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      localFiles.files().add(SHUFFLE, 0, file(batch(3, "a", 4, "bc", 3, "def", 5, "g")));
      LocalReader reader = new LocalReader(localFiles, SHUFFLE, () -> false);
      Heard heard = new Heard();
      List<WantedBlock> both =
          List.of(new WantedBlock("shuffle_7_0_4", 0, 4, 5), new WantedBlock("shuffle_7_0_5", 0, 5, 6));
      assertEquals(List.of(), reader.fromKnownFiles("w", both, ROOM, heard));
      assertEquals(List.of("bc", "g"), heard.texts);

      WantedBlock three = new WantedBlock("shuffle_7_0_3", 0, 3, 4);
      WantedBlock unknown = new WantedBlock("shuffle_7_1_3", 1, 3, 4);
      assertEquals(List.of(unknown), reader.fromKnownFiles("w", List.of(three, unknown, both.get(1)), 5, heard));
      assertEquals(List.of("bc", "g", "adef", "g"), heard.texts);

      List<WantedBlock> oneEmpty = List.of(both.get(1), new WantedBlock("shuffle_7_0_6", 0, 6, 7));
      assertEquals(oneEmpty, reader.fromKnownFiles("w", oneEmpty, ROOM, heard), "all of a run or none");
      assertEquals(4, heard.texts.size());
    }
  }

  private static ShuffleKey key(long shuffle, long generation) {
    return ShuffleKey.newBuilder().setApp("app~1").setShuffle(shuffle).setGeneration(generation).build();
  }

  @Test
  void generationsOfOneNumberAreKeptApart() throws IOException {
    FileIndexCache files = new FileIndexCache(ROOM);
    files.add(key(1, 5), 0, file(batch(0, "a")));
    assertNull(files.find(key(1, 6), 0, "w"));
    assertNotNull(files.find(key(1, 5), 0, "w"));
  }

  @Test
  void endedShuffleIsDroppedAndOthersStay() throws IOException {
    FileIndexCache files = new FileIndexCache(ROOM);
    FileIndexCache.Known known = file(batch(0, "a"));
    files.add(key(1, 1), 0, known);
    files.add(key(1, 1), 1, known);
    files.add(key(1, 5), 0, known);
    files.add(key(2, 1), 0, known);
    files.drop(1);
    assertNull(files.find(key(1, 1), 0, "w"));
    assertNotNull(files.find(key(2, 1), 0, "w"));
    assertEquals(1, files.size());
  }

  @Test
  void whatDoesNotFitGoesByAge() throws IOException {
    FileIndexCache.Known known = file(batch(0, "a"));
    FileIndexCache files = new FileIndexCache(3 * (512 + FileIndex.ROW_BYTES));
    for (int map = 0; map < 3; map++) {
      files.add(key(1, 1), map, known);
      files.add(key(1, 1), map, known); // again takes no more room
    }
    files.find(key(1, 1), 0, "w");
    files.add(key(1, 1), 3, known);
    assertNotNull(files.find(key(1, 1), 0, "w"));
    assertNull(files.find(key(1, 1), 1, "w"));
    files.forget(key(1, 1), 2, known);
    files.forget(key(1, 1), 2, known);
    files.add(key(1, 1), 4, known);
    assertEquals(3, files.size());
  }
}
