package org.apache.spark.shuffle.flight.fetch;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.LongFunction;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.FollowingBlocks.Following;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.PeriodicTask;

/**
 * Small partitions of one shuffle, read before their tasks ask: as file systems do it, while all is asked for in turn.
 *
 * <p>A task of some thousand rows spends more on a request than on its rows, at either end of the wire. While the tasks
 * of this process ask for one partition after the other, the next ones are fetched with one request of each worker: a
 * window. The first task that takes from a window has the next one fetched, so that nobody waits for it. Where several
 * executors share a stage, nothing is read ahead.
 *
 * <p>Over the wire a shuffle of next to nothing is fetched as a whole when a task asks for any of it.
 */
public final class Prefetcher implements AutoCloseable {
  /** Of a partition: of a larger one the request is little beside the rest. */
  static final int LARGEST = 2 << 20;

  /** Of a window, if enough partitions go into it: more would leave the processor's cache before it is used. */
  private static final int WINDOW_BYTES = 2 << 20;

  private static final int FEWEST_PARTITIONS = 4;
  private static final int MOST_PARTITIONS = 64;
  private static final int MOST_BYTES = FEWEST_PARTITIONS * LARGEST;

  /** Of a whole shuffle that is fetched with one request, in blocks and in bytes: no more than a small partition. */
  private static final int LITTLE_BLOCKS = 256;

  private static final long LITTLE_BYTES = InlineFetch.LARGEST;

  /** Kept: more tasks than fit into one window may run at once. */
  private static final int WINDOWS = 8;

  private static final Duration KEPT = Duration.ofSeconds(10);

  private record Window(int first, int end, Map<String, PrefetchedBlocks> fetches) {
    boolean holds(int partition) {
      return partition >= first && partition < end;
    }

    boolean has(String worker, List<WantedBlock> wanted) {
      PrefetchedBlocks fetch = fetches.get(worker);
      return fetch != null && fetch.has(wanted);
    }

    boolean failed(String worker) {
      PrefetchedBlocks fetch = fetches.get(worker);
      return fetch != null && fetch.gone();
    }

    void start() {
      fetches.values().forEach(PrefetchedBlocks::start);
    }

    void drop() {
      fetches.values().forEach(PrefetchedBlocks::drop);
    }
  }

  private final Connections connections;
  private final Duration kept;
  private final RecentPartitions recent = new RecentPartitions();
  private final Deque<Window> windows = new ArrayDeque<>();
  private Window whole;
  private boolean little = true; // until it is known to be more
  private int job; // those that have read the shuffle before, as far as can be told
  private boolean starting;
  private boolean used;
  private boolean watched;

  public Prefetcher(Connections connections) {
    this(connections, KEPT);
  }

  /** @param kept how long what was read ahead is kept while nobody asks for any of it */
  Prefetcher(Connections connections, Duration kept) {
    this.connections = connections;
    this.kept = kept;
  }

  /** As {@link PrefetchedBlocks#take}, for blocks of one partition. */
  boolean take(
      int partition, String worker, List<WantedBlock> wanted, BlockFetchingListener listener, Runnable otherwise) {
    PrefetchedBlocks fetch = null;
    synchronized (this) {
      used = true;
      if (whole != null) {
        fetch = whole.fetches().get(worker);
      }
      for (Window window : windows) {
        if (window.holds(partition)) {
          fetch = window.fetches().get(worker);
        }
      }
    }
    return fetch != null && fetch.take(wanted, listener, otherwise);
  }

  /**
   * As {@link #take}, of a shuffle of next to nothing: has all of it fetched unless that is under way. Does not block.
   *
   * @param fetchers makes what a fetch of so many bytes is made with
   */
  boolean takeOfAll(
      Turn turn, String worker, List<WantedBlock> wanted, BlockFetchingListener listener, Runnable otherwise,
      LongFunction<BlockFetcher> fetchers) {
    Window before;
    Window all;
    synchronized (this) { // tasks that come meanwhile wait for this, and then find what they ask for
      before = whole;
      all = before != null && before.has(worker, wanted) ? before : null;
      if (all == null) {
        if (before != null && before.failed(worker)) {
          little = false; // it would fail again
        }
        all = little ? all(turn, fetchers) : null;
        if (all == null) {
          little = false;
          return false;
        }
        whole = all;
        watch();
      }
    }
    if (all != before) {
      all.start();
      if (before != null) {
        before.drop();
      }
    }
    return take(turn.partition(), worker, wanted, listener, otherwise);
  }

  /** A window of all partitions; null if they are too many, or too large. */
  private static Window all(Turn turn, LongFunction<BlockFetcher> fetchers) {
    if (turn.partitions() > LITTLE_BLOCKS || turn.bytes() > LITTLE_BYTES) {
      return null;
    }
    // On a task's thread, which has just been told of its own blocks: for a map that was lost since, it fails with
    // reason.
    List<Following> blocks = turn.following().of(0, turn.partitions());
    boolean little =
        blocks.size() <= LITTLE_BLOCKS && blocks.stream().mapToLong(Following::bytes).sum() <= LITTLE_BYTES;
    return little ? window(0, blocks, turn.partitions(), fetchers) : null;
  }

  /**
   * A task has begun to ask for its partition: fetches what comes next, if it is time.
   *
   * @param fetchers makes what a fetch of so many bytes is made with
   */
  void goOn(Turn turn, LongFunction<BlockFetcher> fetchers) {
    List<Window> over = List.of();
    int first;
    int ofJob;
    synchronized (this) {
      if (recent.add(turn.partition())) {
        over = List.copyOf(windows);
        windows.clear();
        starting = false;
        job++;
      }
      first = next(turn);
      starting |= first < turn.partitions();
      ofJob = job;
    }
    over.forEach(Window::drop);
    if (first == turn.partitions()) {
      return;
    }
    PeriodicTask.start(connections.pool(), "reading ahead", () -> start(turn, first, ofJob, fetchers));
  }

  /** The first partition to fetch now; behind the last if it is not time. */
  private int next(Turn turn) {
    Window last = windows.peekLast();
    if (starting || !recent.inTurn() || last != null && turn.partition() < last.first()) {
      return turn.partitions();
    }
    return last != null && last.holds(turn.partition()) ? last.end() : turn.partition() + 1;
  }

  private void start(Turn turn, int first, int ofJob, LongFunction<BlockFetcher> fetchers) {
    Window next = null;
    Window over = null;
    try {
      long fitting = Math.max(FEWEST_PARTITIONS, Math.min(MOST_PARTITIONS, WINDOW_BYTES / Math.max(1, turn.bytes())));
      int end = (int) Math.min(turn.partitions(), first + fitting);
      next = window(first, turn.following().of(first, end), end, fetchers);
    } finally {
      synchronized (this) {
        if (ofJob != job) {
          next = null; // it has come too late
        } else {
          starting = false;
        }
        if (next != null) {
          windows.add(next);
          over = windows.size() > WINDOWS ? windows.remove() : null;
          watch();
        }
      }
    }
    if (next != null) {
      next.start(); // before anything else can go wrong: tasks wait for it already
    }
    if (over != null) {
      over.drop();
    }
  }

  /** Of the partitions up to {@code end} as many as are small; null if that is none. */
  private static Window window(int first, List<Following> blocks, int end, LongFunction<BlockFetcher> fetchers) {
    int small = first + small(first, blocks, end);
    Map<String, List<WantedBlock>> byWorker = new LinkedHashMap<>();
    long bytes = 0;
    for (Following one : blocks) {
      if (one.block().firstPartition() < small) {
        byWorker.computeIfAbsent(one.worker(), id -> new ArrayList<>()).add(one.block());
        bytes += one.bytes();
      }
    }
    if (byWorker.isEmpty()) {
      return null;
    }
    Map<String, PrefetchedBlocks> fetches = new HashMap<>();
    for (Map.Entry<String, List<WantedBlock>> each : byWorker.entrySet()) {
      BlockFetcher fetcher = fetchers.apply(bytes);
      fetches.put(each.getKey(), new PrefetchedBlocks(fetcher, each.getKey(), each.getValue(), 2 * MOST_BYTES));
    }
    return new Window(first, small, fetches);
  }

  /** How many partitions from {@code first} on are each worth it and fit into a window together. */
  private static int small(int first, List<Following> blocks, int end) {
    long[] bytes = new long[end - first];
    for (Following one : blocks) {
      bytes[one.block().firstPartition() - first] += one.bytes();
    }
    long sum = 0;
    for (int i = 0; i < bytes.length; i++) {
      sum += bytes[i];
      if (bytes[i] > LARGEST || sum > MOST_BYTES) {
        return i;
      }
    }
    return bytes.length;
  }

  /** Drops what nobody asks for: the job may be over. */
  private void watch() {
    if (!watched) {
      try {
        PeriodicTask.later(connections.timer(), kept, "dropping what was read ahead", this::look);
        watched = true;
      } catch (RejectedExecutionException e) {
        // The executor is stopping, and closes this.
      }
    }
  }

  private void look() {
    synchronized (this) {
      watched = false;
      if (used) {
        used = false;
        watch();
        return;
      }
    }
    PeriodicTask.start(connections.pool(), "dropping what was read ahead", this::close);
  }

  /** Frees everything; who waits for it fetches its own. */
  @Override
  public void close() {
    List<Window> all;
    synchronized (this) {
      all = new ArrayList<>(windows);
      if (whole != null) {
        all.add(whole);
      }
      windows.clear();
      whole = null;
    }
    all.forEach(Window::drop);
  }
}
