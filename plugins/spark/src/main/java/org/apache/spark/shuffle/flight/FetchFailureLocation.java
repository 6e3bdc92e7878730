package org.apache.spark.shuffle.flight;

import java.util.Map;
import org.apache.spark.FetchFailed;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.TaskFailureListener;
import scala.Option;

/**
 * Puts the failed map output's own location into a reader's {@code FetchFailedException}.
 *
 * <p>Spark's fetcher builds that exception from the address it was given, that of a whole worker. The driver
 * unregisters the map output whose location equals the one reported, so it has to be the map's own. An executor does not
 * report the exception that comes out of the task but the last one set in the task's context
 * ({@code TaskContext.setFetchFailed}, which the constructor calls); a failure listener runs before that, so this is the
 * one place where every such exception passes, wherever it was thrown and whatever wrapped it.
 */
final class FetchFailureLocation implements TaskFailureListener {
  private final int shuffleId;
  private final Map<Long, BlockManagerId> locations;

  FetchFailureLocation(int shuffleId, Map<Long, BlockManagerId> locations) {
    this.shuffleId = shuffleId;
    this.locations = locations;
  }

  @Override
  public void onTaskFailure(TaskContext context, Throwable error) {
    Option<FetchFailedException> reported = context.fetchFailed();
    if (reported.isEmpty() || !(reported.get().toTaskFailedReason() instanceof FetchFailed failure)) {
      return;
    }
    BlockManagerId location = locations.get(failure.mapId());
    if (failure.shuffleId() == shuffleId && location != null) {
      context.setFetchFailed(
          new FetchFailedException(
              location, shuffleId, failure.mapId(), failure.mapIndex(), failure.reduceId(), failure.message(),
              reported.get().getCause()));
    }
  }
}
