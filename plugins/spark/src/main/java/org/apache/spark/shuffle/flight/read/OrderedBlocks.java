package org.apache.spark.shuffle.flight.read;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;

/**
 * Gives the blocks of several requests, which arrive in any order, to their listeners in one order. A block that is early is
 * held. All requests must be under way. A failure ends the order: the task fails with it, so nothing waits any more.
 * Thread-safe.
 */
final class OrderedBlocks implements AutoCloseable {
  private record Held(ManagedBuffer data, BlockFetchingListener listener) {
    void give(String block) {
      try {
        listener.onBlockFetchSuccess(block, data);
      } finally {
        data.release(); // the listener holds it as well, until the task has read it
      }
    }
  }

  private final Deque<String> due;
  private final Map<String, Held> early = new HashMap<>();

  /** @param order the ids of all blocks that are asked for */
  OrderedBlocks(List<String> order) {
    this.due = new ArrayDeque<>(order);
  }

  /** What one of the requests is answered to. */
  BlockFetchingListener listener(BlockFetchingListener listener) {
    return new BlockFetchingListener() {
      @Override
      public void onBlockFetchSuccess(String block, ManagedBuffer data) {
        arrived(block, data, listener);
      }

      @Override
      public void onBlockFetchFailure(String block, Throwable why) {
        failed(block, why, listener);
      }
    };
  }

  /** Under the lock, or two threads could change the order; Spark's listeners only put into a queue. */
  private synchronized void arrived(String block, ManagedBuffer data, BlockFetchingListener listener) {
    if (due.isEmpty()) {
      listener.onBlockFetchSuccess(block, data);
      return;
    }
    if (!block.equals(due.peek())) {
      early.put(block, new Held(data.retain(), listener));
      return;
    }
    due.remove();
    listener.onBlockFetchSuccess(block, data);
    for (Held next = early.remove(due.peek()); next != null; next = early.remove(due.peek())) {
      next.give(due.remove());
    }
  }

  private synchronized void failed(String block, Throwable why, BlockFetchingListener listener) {
    due.forEach(
        each -> {
          Held held = early.remove(each);
          if (held != null) {
            held.give(each);
          }
        });
    due.clear();
    listener.onBlockFetchFailure(block, why);
  }

  /** Frees the early blocks. Later ones go to their listeners at once. */
  @Override
  public synchronized void close() {
    early.values().forEach(held -> held.data().release());
    early.clear();
    due.clear();
  }
}
