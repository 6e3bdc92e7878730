package org.apache.spark.shuffle.flight.local;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LocalReaderTest {
  private static final ShuffleKey SHUFFLE = ShuffleKey.newBuilder().setApp("app~1").setShuffle(7).build();

  @TempDir Path directory;

  @Test
  void blockThatWasGivenOutIsNotFetchedAgainAfterWhatNobodyExpects() throws Exception {
    List<String> given = new ArrayList<>();
    BlockFetchingListener listener =
        new BlockFetchingListener() {
          @Override
          public void onBlockFetchSuccess(String block, ManagedBuffer data) {
            if (!given.isEmpty()) {
              throw new AssertionError("not expected");
            }
            given.add(block);
          }

          @Override
          public void onBlockFetchFailure(String block, Throwable why) {
            throw new AssertionError(why);
          }
        };
    List<WantedBlock> wanted =
        Stream.of("shuffle_7_0_2", "shuffle_7_0_3")
            .map(id -> WantedBlock.parse(id, LongUnaryOperator.identity()))
            .toList();
    try (FakeWorker worker = new FakeWorker(call -> null)) {
      LocalFileAccess files = new LocalFileAccess(worker.connections(), true, Duration.ofSeconds(60));
      files.files().add(SHUFFLE, 0, OutputFile.write(directory, OutputFile.batch(2, "two", 3, "three")));
      LocalReader reader = new LocalReader(files, SHUFFLE, () -> false);
      List<WantedBlock> overTheWire = new ArrayList<>();
      assertThrows(
          AssertionError.class, () -> reader.fetch(worker.address(), wanted, listener, overTheWire::addAll));
      assertEquals(List.of(), overTheWire);
      assertEquals(List.of("shuffle_7_0_2"), given);
    }
  }
}
