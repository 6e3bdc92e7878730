package org.apache.spark.shuffle.flight.read;

import java.util.function.Consumer;
import org.apache.spark.FetchFailed;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.shuffle.flight.blocks.BlocksByWorker;
import org.apache.spark.shuffle.flight.fetch.BlockFetcher;
import org.apache.spark.shuffle.flight.metrics.ReadTraffic;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;
import scala.Option;

/**
 * What the end of a task needs of one of its readers. A task may have thousands of them, one after the other: of one that has
 * read everything this object is left, and nothing per block.
 *
 * <p>Ends what is under way, and puts the failed map output's own location into the reader's {@code FetchFailedException}.
 * Spark's fetcher builds that exception from the address it was given, that of a whole worker. The driver unregisters the map
 * output whose location equals the one reported, so it has to be the map's own. An executor does not report the exception
 * that comes out of the task but the last one set in the task's context ({@code TaskContext.setFetchFailed}, which the
 * constructor calls); a failure listener runs first, so this is the one place where every such exception passes,
 * wherever it was thrown and whatever wrapped it.
 */
public final class OpenReader implements TaskCompletionListener, TaskFailureListener {
  private final int shuffle;
  private final Consumer<Traffic> count;
  private final ReadTraffic traffic;
  private BlocksByWorker blocks; // null: the reader has read everything
  private BlockFetcher fetcher;
  private WindowedBlocks windows;

  /**
   * @param count receives what was read of the shuffle
   * @param traffic counts it
   */
  public OpenReader(int shuffle, Consumer<Traffic> count, BlocksByWorker blocks, BlockFetcher fetcher, ReadTraffic traffic) {
    this.shuffle = shuffle;
    this.count = count;
    this.traffic = traffic;
    this.blocks = blocks;
    this.fetcher = fetcher;
  }

  /** From now on the end of the task ends these. */
  public WindowedBlocks watch(WindowedBlocks windows, TaskContext context) {
    this.windows = windows;
    context.addTaskFailureListener(this);
    context.addTaskCompletionListener(this);
    return windows;
  }

  /** The reader has read everything. */
  public void done() {
    count.accept(traffic.take(fetcher::isOverTheWire));
    blocks = null;
    fetcher = null;
    windows = null;
  }

  @Override
  public void onTaskFailure(TaskContext context, Throwable error) {
    Option<FetchFailedException> reported = context.fetchFailed();
    if (blocks == null || reported.isEmpty() || !(reported.get().toTaskFailedReason() instanceof FetchFailed failure)) {
      return;
    }
    BlockManagerId location = blocks.locations().get(failure.mapId());
    if (failure.shuffleId() == shuffle && location != null) {
      context.setFetchFailed(
          new FetchFailedException(
              location, shuffle, failure.mapId(), failure.mapIndex(), failure.reduceId(), failure.message(),
              reported.get().getCause()));
    }
  }

  @Override
  public void onTaskCompletion(TaskContext context) {
    if (fetcher != null) {
      fetcher.close();
      windows.close();
      done();
    }
  }
}
