package org.apache.spark.shuffle.flight.fetch;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongFunction;
import java.util.function.Supplier;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.Backoff;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.local.LocalReader;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What one reduce task has under way at the workers. {@link #close} breaks off all of it. */
public final class BlockFetcher implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(BlockFetcher.class);

  /** Of one request: so much is read from the page cache in well under a millisecond. */
  private static final long AT_ONCE_BYTES = 1 << 20;

  private static final Supplier<BlockSink> MEMORY = MemorySink::new;

  /**
   * What blocks are answered to; throws nothing. An exception out of the answer to one block would end the pull, which
   * counts the block as given out and is repeated without it: the task would wait for ever. So the block fails, and
   * with it the task.
   */
  private record GuardedListener(BlockFetchingListener answers) implements BlockFetchingListener {
    @Override
    public void onBlockFetchSuccess(String block, ManagedBuffer data) {
      PeriodicTask.guarded(
              "taking " + block, () -> answers.onBlockFetchSuccess(block, data), why -> onBlockFetchFailure(block, why))
          .run();
    }

    @Override
    public void onBlockFetchFailure(String block, Throwable why) {
      PeriodicTask.guarded("the failure of " + block, () -> answers.onBlockFetchFailure(block, why)).run();
    }
  }

  private final Connections connections;
  private final LocalFileAccess localFiles;
  private final LocalReader local;
  private final ShuffleKey shuffle;
  private final Duration ioTimeout;
  private final Duration retryWindow;
  private final boolean small;
  private final Turn turn;
  private final Set<BlockFetch> running = ConcurrentHashMap.newKeySet();
  private boolean turnTaken; // by the task's thread only
  private volatile boolean closed;

  /**
   * @param ioTimeout how long a pull may be silent
   * @param retryWindow how long a broken pull is repeated
   * @param most bytes that any worker probably has for the task
   * @param turn of the task, if what its process reads ahead may be for it; else null
   */
  public BlockFetcher(
      LocalFileAccess localFiles, ShuffleKey shuffle, Duration ioTimeout, Duration retryWindow, long most, Turn turn) {
    this.connections = localFiles.connections();
    this.localFiles = localFiles;
    this.local = new LocalReader(localFiles, shuffle, this::closed);
    this.shuffle = shuffle;
    this.ioTimeout = ioTimeout;
    this.retryWindow = retryWindow;
    this.small = most <= InlineFetch.LARGEST;
    this.turn = turn != null && turn.bytes() <= Prefetcher.LARGEST ? turn : null;
  }

  /**
   * Fetches {@code asked} from the files of a worker or with one pull, unless they have been read ahead, and answers to
   * {@code answers}: small blocks whose place is known on this thread, the others on other threads. Does not block.
   *
   * @param worker its id
   * @param answers may throw: the block is answered as failed then
   * @param files when given, blocks are streamed to files of it instead of memory
   */
  public void fetch(
      String worker, List<WantedBlock> asked, BlockFetchingListener answers, DownloadFileManager files,
      TransportConf conf) {
    BlockFetchingListener listener = new GuardedListener(answers);
    if (files != null || turn == null) {
      fetchNow(worker, asked, listener, files, conf);
      return;
    }
    LongFunction<BlockFetcher> fetchers =
        bytes -> new BlockFetcher(localFiles, shuffle, ioTimeout, retryWindow, bytes, null);
    Runnable now =
        PeriodicTask.guarded(
            "a fetch", () -> fetchNow(worker, asked, listener, null, conf), why -> fail(asked, listener, why));
    boolean taken = turn.ahead().take(turn.partition(), worker, asked, listener, now);
    if (!taken && overTheWire(worker).isPresent()) {
      taken = turn.ahead().takeOfAll(turn, worker, asked, listener, now, fetchers);
    }
    if (!taken) {
      now.run();
    }
    if (!turnTaken) {
      turnTaken = true;
      turn.ahead().goOn(turn, fetchers);
    }
  }

  /** Whether it is known that this process does not see the files of a worker. */
  public boolean isOverTheWire(String worker) {
    return overTheWire(worker).isPresent();
  }

  /** Where a worker is whose files this process does not see, as far as is known. */
  private Optional<WorkerAddress> overTheWire(String worker) {
    return connections.known(worker).filter(localFiles::ruledOut);
  }

  private void fetchNow(
      String worker, List<WantedBlock> asked, BlockFetchingListener listener, DownloadFileManager files,
      TransportConf conf) {
    List<WantedBlock> wanted = files == null ? local.fromKnownFiles(worker, asked, AT_ONCE_BYTES, listener) : asked;
    if (wanted.isEmpty()) {
      return;
    }
    Optional<WorkerAddress> overTheWire = overTheWire(worker);
    if (files == null && overTheWire.isPresent()) {
      pull(overTheWire.get(), wanted, Set.of(), listener, MEMORY); // nothing of it blocks: no thread is needed
      return;
    }
    Supplier<BlockSink> sinks = files == null ? MEMORY : () -> new FileSink(files, conf);
    PeriodicTask.start(
        connections.pool(), "a fetch", () -> locateAndFetch(worker, wanted, listener, sinks),
        why -> fail(wanted, listener, why));
  }

  private static void fail(List<WantedBlock> wanted, BlockFetchingListener listener, Throwable why) {
    wanted.forEach(block -> listener.onBlockFetchFailure(block.blockId(), why));
  }

  private void locateAndFetch(
      String worker, List<WantedBlock> wanted, BlockFetchingListener listener, Supplier<BlockSink> sinks) {
    WorkerAddress found;
    try {
      found = find(worker);
    } catch (IOException e) {
      fail(elsewhere(wanted, Set.of(worker), listener, sinks), listener, e);
      return;
    }
    if (sinks == MEMORY) {
      local.fetch(found, wanted, listener, left -> pull(found, left, Set.of(), listener, sinks));
    } else {
      pull(found, wanted, Set.of(), listener, sinks);
    }
  }

  /**
   * Fetches blocks that a worker does not serve from where the master knows them to be now: an output may have moved, or
   * have a copy. Blocks while it asks.
   *
   * @param tried workers not to be asked again
   * @return the blocks that lie nowhere else
   */
  List<WantedBlock> elsewhere(
      List<WantedBlock> wanted, Set<String> tried, BlockFetchingListener listener, Supplier<BlockSink> sinks) {
    if (closed || wanted.isEmpty()) {
      return wanted;
    }
    List<WantedBlock> left = new ArrayList<>();
    Map<WorkerAddress, List<WantedBlock>> found = new LinkedHashMap<>();
    try {
      Map<Long, List<String>> now =
          connections.outputs(shuffle, wanted.stream().map(WantedBlock::map).toList());
      for (WantedBlock block : wanted) {
        Optional<WorkerAddress> other = Optional.empty();
        for (String worker : now.getOrDefault(block.map(), List.of())) {
          if (other.isEmpty() && !tried.contains(worker)) {
            other = connections.find(worker);
          }
        }
        other.ifPresentOrElse(
            worker -> found.computeIfAbsent(worker, key -> new ArrayList<>()).add(block), () -> left.add(block));
      }
    } catch (IOException e) {
      LOG.info("{}; whether {} blocks lie at another worker is not known", e.getMessage(), wanted.size());
      return wanted;
    }
    found.forEach(
        (worker, blocks) -> {
          LOG.info("{} blocks are fetched from {}", blocks.size(), worker);
          pull(worker, blocks, tried, listener, sinks);
        });
    return left;
  }

  /** Blocks: asks the master about a worker that this executor has not met, and while it is away, again. */
  private WorkerAddress find(String worker) throws IOException {
    Backoff backoff = new Backoff(retryWindow);
    while (true) {
      try {
        return connections.find(worker)
            .orElseThrow(() -> new IOException("worker " + worker + " is gone, the master has given it up"));
      } catch (FlightException e) {
        if (closed || !e.passing() || !backoff.mayGoOn()) {
          throw e;
        }
        LOG.info("{}; asking again where worker {} is", e.getMessage(), worker);
      }
      backoff.pause("asking where worker " + worker + " is");
    }
  }

  private void pull(
      WorkerAddress worker, List<WantedBlock> wanted, Set<String> tried, BlockFetchingListener listener,
      Supplier<BlockSink> sinks) {
    BlockFetch fetch = new BlockFetch(this, worker, wanted, tried, listener, sinks, small && sinks == MEMORY);
    running.add(fetch);
    fetch.start();
  }

  @Override
  public void close() {
    closed = true;
    running.forEach(BlockFetch::cancel);
  }

  /** Reports to the master, which has the worker check. Blocks for the time of a control call at most. */
  void reportLost(FailedBlocks.Report report) {
    try {
      connections.control().reportLost(shuffle, report.outputs(), report.reason());
    } catch (IOException e) {
      LOG.info("could not report {} lost map outputs: {}", report.outputs().size(), e.getMessage());
    }
  }

  void done(BlockFetch fetch) {
    running.remove(fetch);
  }

  boolean closed() {
    return closed;
  }

  Connections connections() {
    return connections;
  }

  ShuffleKey shuffle() {
    return shuffle;
  }

  Duration ioTimeout() {
    return ioTimeout;
  }

  Duration retryWindow() {
    return retryWindow;
  }
}
