package org.apache.spark.shuffle.flight.fetch;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Blocks of one worker that are fetched before a task asks for them. Each is given out once.
 *
 * <p>Nothing is given out before all are there: only then has the fetch been verified as a whole. If any of them cannot
 * be had, none is given: who waits for them fetches its own, and so finds out, and says, what is wrong with those.
 */
final class PrefetchedBlocks implements BlockFetchingListener {
  private static final Logger LOG = LoggerFactory.getLogger(PrefetchedBlocks.class);

  private enum State {
    UNDER_WAY,
    THERE,
    GONE
  }

  /** A block that is not given out, and its data when it is there. */
  private record Fetched(WantedBlock block, ManagedBuffer data) {}

  private record Waiting(List<WantedBlock> wanted, BlockFetchingListener listener, Runnable otherwise) {}

  private final BlockFetcher fetcher;
  private final String worker;
  private final List<WantedBlock> blocks;
  private final long mostBytes;
  private final Map<String, Fetched> fetched = new HashMap<>();
  private List<Waiting> waiting = new ArrayList<>();
  private int missing;
  private long bytes;
  private State state = State.UNDER_WAY;

  /**
   * @param fetcher of this alone
   * @param mostBytes what it may hold; Spark's sizes may be averages, so that there is more than was thought
   */
  PrefetchedBlocks(BlockFetcher fetcher, String worker, List<WantedBlock> blocks, long mostBytes) {
    this.fetcher = fetcher;
    this.worker = worker;
    this.blocks = blocks;
    this.mostBytes = mostBytes;
    this.missing = blocks.size();
    blocks.forEach(block -> fetched.put(block.blockId(), new Fetched(block, null)));
  }

  /** Reads what is at hand on this thread, the rest on others. Throws nothing. */
  void start() {
    PeriodicTask.guarded("reading ahead", () -> fetcher.fetch(worker, blocks, this, null, null), why -> drop()).run();
  }

  /**
   * Answers {@code listener} with all of {@code wanted}, now or as soon as they are there.
   *
   * @param otherwise runs instead if they cannot be had; must not block
   * @return false when they are not to be had here; neither is called then
   */
  boolean take(List<WantedBlock> wanted, BlockFetchingListener listener, Runnable otherwise) {
    List<ManagedBuffer> taken = new ArrayList<>(wanted.size());
    synchronized (this) {
      if (!has(wanted)) {
        return false;
      }
      if (state == State.UNDER_WAY) {
        waiting.add(new Waiting(wanted, listener, otherwise));
        return true;
      }
      wanted.forEach(block -> taken.add(fetched.remove(block.blockId()).data()));
    }
    for (int i = 0; i < taken.size(); i++) {
      try {
        listener.onBlockFetchSuccess(wanted.get(i).blockId(), taken.get(i));
      } finally {
        taken.get(i).release(); // the listener holds it as well, until the task has read it
      }
    }
    return true;
  }

  /** Whether these are there, or on their way, and not given out. */
  synchronized boolean has(List<WantedBlock> wanted) {
    return state != State.GONE && wanted.stream().allMatch(this::has);
  }

  private boolean has(WantedBlock wanted) {
    Fetched its = fetched.get(wanted.blockId());
    return its != null && its.block().equals(wanted); // a map that runs again may have another output with the same blocks
  }

  /** Whether it failed, or was dropped. */
  synchronized boolean gone() {
    return state == State.GONE;
  }

  @Override
  public void onBlockFetchSuccess(String blockId, ManagedBuffer data) {
    boolean tooMuch;
    synchronized (this) {
      if (state != State.UNDER_WAY) {
        return;
      }
      fetched.put(blockId, new Fetched(fetched.get(blockId).block(), data.retain()));
      missing--;
      bytes += data.size();
      tooMuch = bytes > mostBytes;
      if (!tooMuch && missing == 0) {
        state = State.THERE;
      }
    }
    if (tooMuch) {
      LOG.info("more than {} bytes were to be read ahead of worker {}: they are left", mostBytes, worker);
      drop();
    } else {
      answerWaiting();
    }
  }

  @Override
  public void onBlockFetchFailure(String blockId, Throwable why) {
    LOG.debug("{} was not read ahead: {}", blockId, why.toString());
    drop();
  }

  /** Breaks off what is under way, and frees what is not taken. */
  void drop() {
    synchronized (this) {
      if (state == State.GONE) {
        return;
      }
      state = State.GONE;
      fetched.values().stream().map(Fetched::data).filter(data -> data != null).forEach(ManagedBuffer::release);
      fetched.clear();
    }
    fetcher.close();
    answerWaiting();
  }

  private void answerWaiting() {
    List<Waiting> all;
    synchronized (this) {
      if (state == State.UNDER_WAY) {
        return;
      }
      all = waiting;
      waiting = List.of();
    }
    for (Waiting one : all) {
      if (!take(one.wanted(), one.listener(), one.otherwise())) {
        one.otherwise().run();
      }
    }
  }
}
