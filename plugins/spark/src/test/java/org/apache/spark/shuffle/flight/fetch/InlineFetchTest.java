package org.apache.spark.shuffle.flight.fetch;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.LongUnaryOperator;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.LocateReply;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.MapOutput;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.proto.WholeGet;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.shuffle.flight.wire.FlightIn;
import org.apache.spark.shuffle.flight.wire.Pulls;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class InlineFetchTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final List<Pulls.Served> SERVED = List.of(served(3, "three"), served(8, "eight"), served(8, "more"));
  private static final List<String> RIGHT = List.of("shuffle_7_3_2 three", "shuffle_7_8_2 eightmore");

  /** The calls of the listener: a block and its text, or a block and its failure. */
  private static final class Heard implements BlockFetchingListener {
    private final BlockingQueue<String> all = new LinkedBlockingQueue<>();
    private final List<String> threads = new CopyOnWriteArrayList<>();
    private volatile AssertionError once; // thrown out of the first answer

    @Override
    public void onBlockFetchSuccess(String block, ManagedBuffer data) {
      threads.add(Thread.currentThread().getName());
      if (once != null) {
        AssertionError thrown = once;
        once = null;
        throw thrown;
      }
      try {
        all.add(block + " " + UTF_8.decode(data.nioByteBuffer()));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public void onBlockFetchFailure(String block, Throwable why) {
      threads.add(Thread.currentThread().getName());
      all.add(block + " " + why.getMessage());
    }

    List<String> next(int count) throws InterruptedException {
      List<String> next = new ArrayList<>();
      while (next.size() < count) {
        next.add(all.poll(30, TimeUnit.SECONDS));
      }
      return next;
    }
  }

  private final List<String> calls = new ArrayList<>();
  private final Heard heard = new Heard();

  private static Pulls.Served served(long map, String text) {
    return new Pulls.Served(map, 2, text.getBytes(UTF_8));
  }

  private static byte[] right() {
    return FakeWorker.result(Pulls.whole(SERVED));
  }

  /** A worker that gives one answer after the other to `get`, and to streams {@code SERVED}. */
  private FakeWorker answering(byte[]... answers) throws IOException {
    Deque<byte[]> left = new ArrayDeque<>(Arrays.asList(answers));
    return new FakeWorker(
        call -> {
          calls.add(call);
          if (call.equals("DoAction")) {
            byte[] answer = left.poll();
            return answer == null ? List.of() : List.of(answer);
          }
          BlockTotals totals = new BlockTotals();
          SERVED.forEach(
              block -> totals.add(block.partition(), block.checksum(), block.payload().length, block.payload().length, 0));
          byte[] end = GetControl.newBuilder().setEnd(totals.toMessage()).build().toByteArray();
          return List.of(
              FakeWorker.data(Pulls.message(SERVED)),
              FakeWorker.data(new FlightIn(new byte[0], end, Unpooled.EMPTY_BUFFER)));
        });
  }

  private BlockFetcher fetcher(FakeWorker worker) {
    ShuffleKey shuffle = ShuffleKey.newBuilder().setApp("app").setShuffle(7).build();
    return new BlockFetcher(new LocalFileAccess(worker.connections(), false, LONG), shuffle, LONG, LONG, InlineFetch.LARGEST, null);
  }

  private List<String> fetched(FakeWorker worker) throws Exception {
    return fetched(worker, MemorySink::new);
  }

  private static List<WantedBlock> wanted() {
    return Stream.of("shuffle_7_3_2", "shuffle_7_8_2")
        .map(id -> WantedBlock.parse(id, LongUnaryOperator.identity()))
        .toList();
  }

  private List<String> fetched(FakeWorker worker, Supplier<BlockSink> sinks) throws Exception {
    new BlockFetch(fetcher(worker), worker.address(), wanted(), Set.of(), heard, sinks, true).start();
    return heard.next(2);
  }

  @Test
  void blocksComeInOneAnswer() throws Exception {
    try (FakeWorker worker = answering(right())) {
      assertEquals(RIGHT, fetched(worker));
      assertEquals(List.of("DoAction"), calls);
    }
  }

  @Test
  void whatTheWorkerWantsToStreamIsStreamed() throws Exception {
    try (FakeWorker worker = answering(FakeWorker.result(WholeGet.newBuilder().setStream(true).build()))) {
      assertEquals(RIGHT, fetched(worker));
      assertEquals(List.of("DoAction", "DoGet"), calls);
    }
  }

  @Test
  void answerThatIsNoneIsAskedForAgain() throws Exception {
    byte[] cut = Arrays.copyOf(right(), right().length - 1);
    byte[] sizes = FakeWorker.result(Pulls.whole(SERVED).toBuilder().clearMaps().build());
    for (byte[] wrong : new byte[][] {FakeWorker.result(new byte[] {-1}), cut, sizes}) {
      calls.clear();
      try (FakeWorker worker = answering(wrong, right())) {
        assertEquals(RIGHT, fetched(worker));
        assertEquals(List.of("DoAction", "DoAction"), calls);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whatNobodyExpectsInACallbackCostsThatPullOnly(boolean streamed) throws Exception {
    Deque<RuntimeException> once = new ArrayDeque<>(List.of(new IllegalStateException("not expected")));
    byte[] first = streamed ? FakeWorker.result(WholeGet.newBuilder().setStream(true).build()) : right();
    Supplier<BlockSink> sinks =
        () -> {
          if (!once.isEmpty()) {
            throw once.remove();
          }
          return new MemorySink();
        };
    try (FakeWorker worker = answering(first, right())) {
      assertEquals(RIGHT, fetched(worker, sinks));
      assertEquals(List.of("DoAction", streamed ? "DoGet" : "DoAction"), calls.subList(0, 2));
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whatNobodyExpectsOutOfTheAnswerToABlockFailsThatBlockOnly(boolean streamed) throws Exception {
    byte[] first = streamed ? FakeWorker.result(WholeGet.newBuilder().setStream(true).build()) : right();
    try (FakeWorker worker = answering(first)) {
      worker.introduce(worker.address().port());
      heard.once = new AssertionError("not expected");
      fetcher(worker).fetch("w", wanted(), heard, null, null);
      assertEquals(List.of("shuffle_7_3_2 not expected", RIGHT.get(1)), heard.next(2));
      assertEquals(List.of("DoAction", "DoGet").subList(0, streamed ? 2 : 1), calls);
    }
  }

  @Test
  void whatNobodyExpectsWhileABlockIsLookedForElsewhereFailsIt() throws Exception {
    byte[] wrong = FakeWorker.result(Pulls.whole(SERVED).toBuilder().setEnd(Totals.newBuilder().setBlocks(3)).build());
    MapOutput eight =
        MapOutput.newBuilder().setOutput(MapAttempt.newBuilder().setMap(8)).setWorker("x").build();
    Worker nowhere = Worker.newBuilder().setId("x").setHost("127.0.0.1").setPort(70_000).build(); // no port is
    byte[] located = LocateReply.newBuilder().addOutputs(eight).addWorkers(nowhere).build().toByteArray();
    try (FakeWorker worker =
        new FakeWorker(call -> List.of(call.equals("Locate") ? located : wrong), null, List.of("Locate"))) {
      List<String> said = fetched(worker);
      assertEquals(RIGHT.get(0), said.get(0));
      assertTrue(said.get(1).startsWith("shuffle_7_8_2 ") && said.get(1).contains("70000"), said.get(1));
    }
  }

  @Test
  void whatNobodyExpectsWhenABlockIsAskedForAfterAllFailsIt() throws Exception {
    try (FakeWorker worker = answering()) {
      worker.introduce(70_000); // no port is
      Prefetcher ahead = new Prefetcher(worker.connections());
      LocalFileAccess files = new LocalFileAccess(worker.connections(), false, LONG);
      Turn turn = new Turn(ahead, 2, 1000, 1, (first, end) -> List.of());
      new BlockFetcher(files, ShuffleKey.getDefaultInstance(), LONG, LONG, 1, turn)
          .fetch("w", wanted(), heard, null, null);
      assertTrue(heard.next(2).get(1).startsWith("shuffle_7_8_2 "));
    }
  }

  @Test
  void sinkThatCannotBeDiscardedCostsThatPullOnly() throws Exception {
    Deque<BlockSink> first =
        new ArrayDeque<>(
            List.of(
                new BlockSink() {
                  @Override
                  public void add(ByteBuf from, int offset, int length) throws IOException {
                    throw new IOException("no space left on device");
                  }

                  @Override
                  public ManagedBuffer finish() {
                    throw new UnsupportedOperationException();
                  }

                  @Override
                  public void discard() {
                    throw new IllegalStateException("not expected");
                  }
                }));
    try (FakeWorker worker = answering(right(), right())) {
      assertEquals(RIGHT, fetched(worker, () -> first.isEmpty() ? new MemorySink() : first.remove()));
    }
  }

  @Test
  void noAnswerAtAllIsAskedForAgain() throws Exception {
    Deque<List<byte[]>> answers = new ArrayDeque<>(List.of(List.of(), List.of(right())));
    try (FakeWorker worker = new FakeWorker(call -> answers.poll())) {
      assertEquals(RIGHT, fetched(worker));
    }
  }

  @Test
  void blockOfAnotherChecksumIsFetchedOnceMore() throws Exception {
    List<Pulls.Served> damaged = new ArrayList<>(SERVED);
    damaged.set(2, new Pulls.Served(8, 2, "mode".getBytes(UTF_8), Pulls.crc("more".getBytes(UTF_8))));
    byte[] eight = FakeWorker.result(Pulls.whole(SERVED.subList(1, 3)));
    try (FakeWorker worker = answering(FakeWorker.result(Pulls.whole(damaged)), eight)) {
      assertEquals(RIGHT, fetched(worker));
      assertEquals(List.of("DoAction", "DoAction"), calls);
    }
  }

  @Test
  void totalsThatDifferFailWhatTheyCanNoLongerProve() throws Exception {
    WholeGet wrong = Pulls.whole(SERVED).toBuilder().setEnd(Totals.newBuilder().setBlocks(3)).build();
    try (FakeWorker worker = answering(FakeWorker.result(wrong))) {
      List<String> said = fetched(worker);
      assertEquals(RIGHT.get(0), said.get(0)); // given out when the next one came; its task fails with the other
      assertTrue(said.get(1).startsWith("shuffle_7_8_2 ") && said.get(1).contains("INTERNAL"), said.get(1));
      assertEquals(List.of("DoAction"), calls);
    }
  }

  @Test
  void nettysThreadGivesOutBlocksAndAnotherDoesWhatMayBlock() throws Exception {
    WholeGet wrong = Pulls.whole(SERVED).toBuilder().setEnd(Totals.newBuilder().setBlocks(3)).build();
    try (FakeWorker worker = answering(FakeWorker.result(wrong))) {
      fetched(worker);
      assertTrue(heard.threads.get(0).startsWith("grpc-"), heard.threads.toString());
      assertTrue(heard.threads.get(1).startsWith("flight-shuffle-io-"), heard.threads.toString());
    }
  }

  @Test
  void taskThatIsOverIsAnsweredThatItIs() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> null)) {
      BlockFetcher fetcher = fetcher(worker);
      BlockFetch fetch =
          new BlockFetch(
              fetcher, worker.address(), List.of(WantedBlock.parse("shuffle_7_3_2", LongUnaryOperator.identity())), Set.of(),
              heard, MemorySink::new, true);
      fetch.start();
      fetcher.close();
      fetch.cancel();
      assertTrue(heard.next(1).get(0).contains("the reduce task is over"));
    }
  }
}
