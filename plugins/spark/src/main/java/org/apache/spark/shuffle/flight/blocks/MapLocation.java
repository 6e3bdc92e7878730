package org.apache.spark.shuffle.flight.blocks;

import org.apache.spark.storage.BlockManagerId;
import scala.Option;

/**
 * How a map output's place is written into Spark's {@code BlockManagerId}.
 *
 * <p>Two forms, both measured to matter (see the methods): one per map output, which the {@code MapStatus} carries, and
 * one per worker, which a reader hands to Spark's fetcher.
 */
public final class MapLocation {
  private static final String PREFIX = "flight-";
  private static final char SEPARATOR = '/';
  private static final char SHARE = '*';
  /** The share of all bytes. */
  public static final int WHOLE = 1000;
  private static final String NOWHERE = "";
  /** Any that Spark takes: the worker is found by its id. */
  private static final int WORKER_PORT = 1;

  private MapLocation() {}

  /**
   * The location of one map output: an executor id of its own at the host and port of the executor that wrote it.
   *
   * <p>After a {@code FetchFailed}, {@code DAGScheduler} drops everything of the failed address's executor id: with an id
   * per map that is this output and nothing else. The host is also where Spark prefers to run the reducers, so it has to
   * be one that has executors; a stage would wait for ever for another.
   */
  public static BlockManagerId ofMap(String worker, long output, BlockManagerId executor) {
    return named(PREFIX + worker + SEPARATOR + output, executor);
  }

  /**
   * The location of a map output of {@code written} bytes whose status has {@code planned}: those are sizes to plan with,
   * so the location has what share of them there is to fetch, in thousandths.
   */
  public static BlockManagerId withShare(BlockManagerId location, long written, long planned) {
    long share = planned == 0 ? WHOLE : Math.max(1, (written * WHOLE + planned - 1) / planned);
    return share == WHOLE ? location : named(location.executorId() + SHARE + share, location);
  }

  private static BlockManagerId named(String id, BlockManagerId at) {
    return BlockManagerId.apply(id, at.host(), at.port(), Option.empty());
  }

  /** The same map output at another worker. */
  public static BlockManagerId moved(BlockManagerId location, String worker) {
    String id = location.executorId();
    return named(PREFIX + worker + id.substring(id.lastIndexOf(SEPARATOR)), location);
  }

  /** Bytes to fetch of 1,000 in the status: a mean of the map output at {@code location}. */
  public static long share(BlockManagerId location) {
    String id = location.executorId();
    int share = id.indexOf(SHARE, id.lastIndexOf(SEPARATOR));
    return share < 0 ? WHOLE : Long.parseLong(id, share + 1, id.length(), 10);
  }

  /** The location of a map output without any bytes, which is neither pushed nor fetched: at no worker. */
  public static BlockManagerId ofEmpty(long output, BlockManagerId executor) {
    return ofMap(NOWHERE, output, executor);
  }

  /**
   * The address of all outputs at one worker in a single reader, so that its requests are batched.
   *
   * <p>{@code ShuffleBlockFetcherIterator} takes an address with its own host for one whose disks it can read itself. No
   * executor has this host.
   */
  public static BlockManagerId ofWorker(String worker) {
    return BlockManagerId.apply(PREFIX + worker, PREFIX + worker, WORKER_PORT, Option.empty());
  }

  /** Whether a location is of a map output that lies at a worker, whichever. */
  public static boolean isAtAWorker(BlockManagerId location) {
    return location.executorId().startsWith(PREFIX) && !isAt(location, NOWHERE);
  }

  /** Whether a location is of a map output at {@code worker}. */
  public static boolean isAt(BlockManagerId location, String worker) {
    return location.executorId().startsWith(PREFIX + worker + SEPARATOR);
  }

  /** The number at the worker of the map output whose location this is: that of the task attempt that wrote it. */
  public static long output(BlockManagerId location) {
    String id = location.executorId();
    int begin = id.lastIndexOf(SEPARATOR) + 1;
    int share = id.indexOf(SHARE, begin);
    return Long.parseLong(id, begin, share < 0 ? id.length() : share, 10);
  }

  /** The worker in either form's executor id. */
  public static String worker(String executorId) {
    if (!executorId.startsWith(PREFIX)) {
      throw new IllegalStateException("a map output of a Flight shuffle lies at " + executorId + ", not at a worker");
    }
    int end = executorId.lastIndexOf(SEPARATOR);
    return executorId.substring(PREFIX.length(), end < 0 ? executorId.length() : end);
  }
}
