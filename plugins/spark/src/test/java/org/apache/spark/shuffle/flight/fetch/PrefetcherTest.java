package org.apache.spark.shuffle.flight.fetch;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongUnaryOperator;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.FollowingBlocks.Following;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.local.FileIndexCache;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.local.OutputFile;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** One map output in a file, whose partitions are read one after the other. Nothing is left of the file but what was read. */
@Timeout(60)
class PrefetcherTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final ShuffleKey SHUFFLE = ShuffleKey.newBuilder().setApp("app").setShuffle(7).build();
  private static final int PARTITIONS = 100;

  /** Of the task's partition, as Spark is said to know it: four such make a window. */
  private static final long BYTES = 512 << 10;

  /** After so many, the blocks that follow are read ahead. */
  private static final int IN_TURN = 26;

  private record Range(int first, int end) {}

  @TempDir Path directory;

  private final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
  private final BlockingQueue<Range> windows = new LinkedBlockingQueue<>();
  private final AtomicLong eachBytes = new AtomicLong(2);
  private FakeWorker worker;
  private LocalFileAccess localFiles;
  private Prefetcher ahead;
  private Path file;

  @BeforeEach
  void start() throws IOException {
    worker =
        new FakeWorker(
            call -> {
              throw new AssertionError("asked");
            });
    localFiles = new LocalFileAccess(worker.connections(), true, LONG);
    ahead = new Prefetcher(worker.connections(), LONG);
    List<Object> blocks = new ArrayList<>();
    for (int partition = 0; partition < PARTITIONS; partition++) {
      blocks.addAll(List.of(partition, text(partition)));
    }
    FileIndexCache.Known known = OutputFile.write(directory, OutputFile.batch(blocks.toArray()));
    file = known.path();
    localFiles.files().add(SHUFFLE, 0, known);
  }

  @AfterEach
  void stop() {
    ahead.close();
    worker.close();
  }

  private static String text(int partition) {
    return "of " + partition;
  }

  private static WantedBlock block(int partition) {
    return WantedBlock.parse("shuffle_7_0_" + partition, LongUnaryOperator.identity());
  }

  private List<Following> following(int first, int end) {
    List<Following> all = new ArrayList<>();
    for (int partition = first; partition < end; partition++) {
      all.add(new Following("w", block(partition), eachBytes.get()));
    }
    windows.add(new Range(first, end));
    return all;
  }

  private void ask(int partition) {
    Turn turn = new Turn(ahead, partition, PARTITIONS, BYTES, this::following);
    BlockFetcher fetcher = new BlockFetcher(localFiles, SHUFFLE, LONG, LONG, 2, turn);
    fetcher.fetch("w", List.of(block(partition)), new Hearing(), null, null);
  }

  private String read(int partition) throws InterruptedException {
    ask(partition);
    return heard.poll(30, TimeUnit.SECONDS);
  }

  private void readInTurn(int first, int end) throws InterruptedException {
    for (int partition = first; partition < end; partition++) {
      assertEquals(text(partition), read(partition));
    }
  }

  private Range nextWindow() throws InterruptedException {
    return windows.poll(30, TimeUnit.SECONDS);
  }

  /** Waits until a window was read: a reader gets a block of it when all of it is there. */
  private void takeFromFirstWindow() throws InterruptedException {
    readInTurn(0, IN_TURN);
    assertEquals(new Range(26, 30), nextWindow());
    while (!taken(26)) {
      Thread.sleep(1); // it may not be entered yet
    }
    assertEquals(text(26), heard.poll(30, TimeUnit.SECONDS));
  }

  private boolean taken(int partition) {
    return ahead.take(partition, "w", List.of(block(partition)), new Hearing(), () -> heard.add("own"));
  }

  private final class Hearing implements BlockFetchingListener {
    @Override
    public void onBlockFetchSuccess(String block, ManagedBuffer data) {
      try {
        heard.add(UTF_8.decode(data.nioByteBuffer()).toString());
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public void onBlockFetchFailure(String block, Throwable why) {
      heard.add(block + " " + why.getMessage());
    }
  }

  @Test
  void whatFollowsIsReadWithoutBeingAskedFor() throws Exception {
    takeFromFirstWindow();
    Files.delete(file);
    readInTurn(27, 30);
  }

  @Test
  void theNextWindowIsReadWhenTheFirstTaskTakesFromTheLast() throws Exception {
    takeFromFirstWindow();
    assertNull(windows.poll());
    assertEquals(text(27), read(27));
    assertEquals(new Range(30, 34), nextWindow());
    readInTurn(28, 30);
    assertNull(windows.poll(), "one is enough");
    while (!taken(30)) {
      Thread.sleep(1);
    }
    assertEquals(text(30), heard.poll(30, TimeUnit.SECONDS));
    Files.delete(file);
    readInTurn(31, 34);
  }

  @Test
  void nothingIsReadBehindTheLast() throws Exception {
    readInTurn(PARTITIONS - 2 - IN_TURN, PARTITIONS - 2);
    assertEquals(new Range(PARTITIONS - 2, PARTITIONS), nextWindow());
    readInTurn(PARTITIONS - 2, PARTITIONS);
    assertNull(windows.poll(200, TimeUnit.MILLISECONDS));
  }

  @Test
  void theNextJobIsReadAheadOf() throws Exception {
    takeFromFirstWindow();
    readInTurn(27, 28);
    assertEquals(new Range(30, 34), nextWindow());
    readInTurn(0, IN_TURN);
    assertEquals(new Range(26, 30), nextWindow());
  }

  @Test
  void everySecondIsNotReadAhead() throws Exception {
    for (int partition = 0; partition < PARTITIONS; partition += 2) {
      assertEquals(text(partition), read(partition));
    }
    assertNull(windows.poll(200, TimeUnit.MILLISECONDS));
  }

  @Test
  void largePartitionsAreLeft() throws Exception {
    eachBytes.set(Prefetcher.LARGEST + 1);
    readInTurn(0, IN_TURN);
    assertEquals(new Range(26, 30), nextWindow());
    Thread.sleep(50);
    assertFalse(taken(26));
    eachBytes.set(Prefetcher.LARGEST);
    Range next = null;
    while (next == null) { // nothing is started as long as the first attempt has not ended
      readInTurn(26, 27);
      next = windows.poll(50, TimeUnit.MILLISECONDS);
    }
    assertEquals(new Range(27, 31), next);
    while (!taken(27)) {
      Thread.sleep(1);
    }
  }

  /** Whether a task that asks for a partition of so many over the wire gets it from what is fetched as a whole. */
  private boolean takenOfAll(int partition, int partitions) {
    Turn turn = new Turn(ahead, partition, partitions, eachBytes.get(), this::following);
    return ahead.takeOfAll(
        turn, "w", List.of(block(partition)), new Hearing(), () -> heard.add("own"),
        bytes -> new BlockFetcher(localFiles, SHUFFLE, LONG, LONG, bytes, null));
  }

  @Test
  void aShuffleOfNextToNothingIsFetchedAsAWhole() throws Exception {
    assertTrue(takenOfAll(3, PARTITIONS));
    assertEquals(new Range(0, PARTITIONS), windows.poll());
    Files.delete(file);
    assertTrue(takenOfAll(PARTITIONS - 1, PARTITIONS));
    assertTrue(taken(0));
    assertEquals(List.of(text(3), text(PARTITIONS - 1), text(0)), List.copyOf(heard));
    assertNull(windows.poll());
  }

  @Test
  void whoAsksAgainHasItFetchedAgain() throws Exception {
    assertTrue(takenOfAll(5, PARTITIONS));
    assertFalse(taken(5), "it was given out");
    assertTrue(takenOfAll(5, PARTITIONS));
    assertTrue(taken(6));
    assertEquals(List.of(text(5), text(5), text(6)), List.copyOf(heard));
    assertEquals(2, windows.size());
  }

  @Test
  void whatCannotBeFetchedAsAWholeIsNotTriedTwice() throws Exception {
    eachBytes.set(1);
    assertTrue(takenOfAll(5, PARTITIONS + 1)); // of the last partition there is nothing in the file
    assertEquals("own", heard.poll(30, TimeUnit.SECONDS));
    assertFalse(takenOfAll(6, PARTITIONS + 1));
    assertFalse(takenOfAll(7, PARTITIONS + 1));
    assertEquals(1, windows.size());
  }

  @Test
  void aShuffleOfMoreThanThatIsNot() {
    eachBytes.set(InlineFetch.LARGEST / PARTITIONS + 1);
    assertFalse(takenOfAll(0, PARTITIONS));
    assertFalse(takenOfAll(1, PARTITIONS));
    assertEquals(List.of(new Range(0, PARTITIONS)), List.copyOf(windows), "looked at once");
  }

  @Test
  void aShuffleOfManyPartitionsIsNotEvenLookedAt() {
    assertFalse(takenOfAll(0, 1000));
    assertTrue(windows.isEmpty());
  }

  @Test
  void whatNobodyAsksForIsDroppedAfterAWhile() throws Exception {
    ahead = new Prefetcher(worker.connections(), Duration.ofMillis(100));
    takeFromFirstWindow();
    Thread.sleep(3000);
    assertFalse(taken(27));
    assertEquals(text(27), read(27), "its task reads its own");
  }
}
