package org.apache.spark.shuffle.flight.blocks;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Queue;
import org.apache.spark.storage.BlockId;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.collection.mutable.ArrayBuffer;

/**
 * Cuts the blocks of a reader into windows, in their order. Spark's fetcher gets one window at a time and asks for all of it
 * at once, because a window keeps within the limits of what may be in flight: so its blocks can be put in order again,
 * and none waits for a request that the fetcher holds back.
 */
public final class FetchWindows {
  /**
   * Limits of one window.
   *
   * @param bytes of all of its blocks, unless it is a single one
   * @param request bytes at which Spark's fetcher ends a request
   * @param requests to all workers together
   * @param blocks of one worker
   */
  public record Limits(long bytes, long request, int requests, int blocks) {
    /** Two windows are in flight. As {@code ShuffleBlockFetcherIterator} cuts requests: a fifth of what may be in flight. */
    public static Limits of(long inFlight, int requests, int blocksPerWorker) {
      return new Limits(Math.max(1, inFlight / 2), Math.max(1, inFlight / 5), Math.max(1, requests / 2), blocksPerWorker);
    }
  }

  private record OfMap(String worker, Iterator<Tuple3<BlockId, Object, Object>> blocks) {}

  private static final class OfWorker {
    private final ArrayBuffer<Tuple3<BlockId, Object, Object>> blocks = new ArrayBuffer<>();
    private long bytes;
  }

  private final Limits limits;
  private final Queue<OfMap> left = new ArrayDeque<>();
  private Tuple3<BlockId, Object, Object> first; // of the next window, if the last one had no room for it
  private Map<String, OfWorker> window = new HashMap<>();
  private long bytes;
  private long requests;

  FetchWindows(Limits limits) {
    this.limits = limits;
  }

  /** The blocks of one map, behind those of the map before. */
  void add(String worker, Seq<Tuple3<BlockId, Object, Object>> blocks) {
    left.add(new OfMap(worker, blocks.iterator()));
  }

  /** The blocks of the next window by worker; empty after the last. */
  public Map<String, Seq<Tuple3<BlockId, Object, Object>>> next() {
    window = new LinkedHashMap<>();
    bytes = 0;
    requests = 0;
    boolean full = false;
    while (!full && !left.isEmpty()) {
      full = !fill(left.peek());
      if (!full) {
        left.remove();
      }
    }
    Map<String, Seq<Tuple3<BlockId, Object, Object>>> blocks = new LinkedHashMap<>();
    window.forEach((worker, its) -> blocks.put(worker, its.blocks));
    return blocks;
  }

  /** Takes the blocks of a map as long as there is room for them; whether that was all. */
  private boolean fill(OfMap map) {
    OfWorker worker = window.computeIfAbsent(map.worker(), id -> new OfWorker());
    while (first != null || map.blocks().hasNext()) {
      Tuple3<BlockId, Object, Object> block = first != null ? first : map.blocks().next();
      if (!take(worker, block)) {
        first = block;
        window.values().removeIf(each -> each.blocks.isEmpty());
        return false;
      }
      first = null;
    }
    return true;
  }

  private boolean take(OfWorker worker, Tuple3<BlockId, Object, Object> block) {
    long size = (Long) block._2();
    long its = worker.blocks.isEmpty() ? 0 : 1 + worker.bytes / limits.request();
    long more = 1 + (worker.bytes + size) / limits.request() - its;
    boolean room =
        bytes + size <= limits.bytes()
            && requests + more <= limits.requests()
            && worker.blocks.size() < limits.blocks();
    if (requests > 0 && !room) {
      return false;
    }
    worker.blocks.$plus$eq(block);
    worker.bytes += size;
    bytes += size;
    requests += more;
    return true;
  }
}
