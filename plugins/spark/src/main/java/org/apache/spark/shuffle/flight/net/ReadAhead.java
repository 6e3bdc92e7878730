package org.apache.spark.shuffle.flight.net;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.net.FollowingBlocks.Following;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Small partitions of one shuffle, read before their tasks ask: as file systems do it, while all is asked for in turn.
 *
 * <p>A task of some thousand rows spends more on a request than on its rows, at either end of the wire. While the tasks of
 * this process ask for one partition after the other, the next ones are fetched with one request of each worker: a window. The
 * first task that takes from a window has the next one fetched, so that nobody waits for it. Where several executors share a
 * stage, nothing is read ahead.
 */
public final class ReadAhead implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(ReadAhead.class);

  /** Of a partition: of a larger one the request is little beside the rest. */
  static final int LARGEST = 2 << 20;

  /** Of a window, if enough partitions go into it: more would leave the processor's cache before it is used. */
  private static final int WINDOW_BYTES = 2 << 20;

  private static final int FEWEST_PARTITIONS = 4;
  private static final int MOST_PARTITIONS = 64;
  private static final int MOST_BYTES = FEWEST_PARTITIONS * LARGEST;

  /** Kept: more tasks than fit into one window may run at once. */
  private static final int WINDOWS = 8;

  private static final Duration KEPT = Duration.ofSeconds(10);

  private record Window(int first, int end, Map<String, AheadFetch> fetches) {
    boolean holds(int partition) {
      return partition >= first && partition < end;
    }

    void drop() {
      fetches.values().forEach(AheadFetch::drop);
    }
  }

  private final Connections connections;
  private final Duration kept;
  private final RecentPartitions recent = new RecentPartitions();
  private final Deque<Window> windows = new ArrayDeque<>();
  private boolean starting;
  private boolean used;
  private boolean watched;

  public ReadAhead(Connections connections) {
    this(connections, KEPT);
  }

  /** @param kept how long what was read ahead is kept while nobody asks for any of it */
  ReadAhead(Connections connections, Duration kept) {
    this.connections = connections;
    this.kept = kept;
  }

  /** As {@link AheadFetch#take}, for blocks of one partition. */
  boolean take(
      int partition, String worker, List<WantedBlock> wanted, BlockFetchingListener listener, Runnable otherwise) {
    AheadFetch fetch = null;
    synchronized (this) {
      used = true;
      for (Window window : windows) {
        if (window.holds(partition)) {
          fetch = window.fetches().get(worker);
        }
      }
    }
    return fetch != null && fetch.take(wanted, listener, otherwise);
  }

  /**
   * A task has asked for its partition: fetches what comes next, if it is time.
   *
   * @param fetchers makes what a fetch is made with
   */
  void goOn(Turn turn, Supplier<BlockFetcher> fetchers) {
    int first;
    synchronized (this) {
      recent.add(turn.partition());
      Window last = windows.peekLast();
      if (starting || !recent.inTurn() || last != null && turn.partition() < last.first()) {
        return;
      }
      first = last != null && last.holds(turn.partition()) ? last.end() : turn.partition() + 1;
      starting = first < turn.partitions();
      if (!starting) {
        return;
      }
    }
    try {
      connections.pool().execute(() -> start(turn, first, fetchers));
    } catch (RejectedExecutionException e) {
      LOG.debug("nothing is read ahead: this executor stops");
    }
  }

  private void start(Turn turn, int first, Supplier<BlockFetcher> fetchers) {
    Window next = null;
    Window over = null;
    try {
      long fitting = Math.max(FEWEST_PARTITIONS, Math.min(MOST_PARTITIONS, WINDOW_BYTES / Math.max(1, turn.bytes())));
      int end = (int) Math.min(turn.partitions(), first + fitting);
      next = window(first, turn.following().of(first, end), end, fetchers);
    } finally {
      synchronized (this) {
        starting = false;
        if (next != null) {
          windows.add(next);
          over = windows.size() > WINDOWS ? windows.remove() : null;
          watch();
        }
      }
    }
    if (over != null) {
      over.drop();
    }
    if (next != null) {
      next.fetches().values().forEach(AheadFetch::start);
    }
  }

  /** Of the partitions up to {@code end} as many as are small; null if that is none. */
  private static Window window(int first, List<Following> blocks, int end, Supplier<BlockFetcher> fetchers) {
    int small = first + small(first, blocks, end);
    Map<String, List<WantedBlock>> byWorker = new LinkedHashMap<>();
    for (Following one : blocks) {
      if (one.block().firstPartition() < small) {
        byWorker.computeIfAbsent(one.worker(), id -> new ArrayList<>()).add(one.block());
      }
    }
    if (byWorker.isEmpty()) {
      return null;
    }
    Map<String, AheadFetch> fetches = new HashMap<>();
    byWorker.forEach((worker, all) -> fetches.put(worker, new AheadFetch(fetchers.get(), worker, all, 2 * MOST_BYTES)));
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
        connections.timer().schedule(this::look, kept.toMillis(), TimeUnit.MILLISECONDS);
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
    connections.pool().execute(this::close);
  }

  /** Frees everything; who waits for it fetches its own. */
  @Override
  public void close() {
    List<Window> all;
    synchronized (this) {
      all = List.copyOf(windows);
      windows.clear();
    }
    all.forEach(Window::drop);
  }
}
