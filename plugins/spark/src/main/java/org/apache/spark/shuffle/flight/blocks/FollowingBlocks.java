package org.apache.spark.shuffle.flight.blocks;

import java.util.List;
import org.apache.spark.MapOutputTracker;
import org.slf4j.LoggerFactory;

/** What the partitions behind that of a reduce task consist of, as Spark knows it in this process. */
public interface FollowingBlocks {
  /**
   * One block of one partition.
   *
   * @param worker where it lies
   * @param bytes about how many: Spark keeps sizes to within a tenth, or averages
   */
  record Following(String worker, WantedBlock block, long bytes) {}

  /**
   * What Spark throws is not thrown on; but if the thread is a task's, that one fails for it.
   *
   * @return the blocks of partitions {@code first} to before {@code end} that are not empty; none when they are not known
   */
  List<Following> of(int first, int end);

  /** As {@code tracker} knows them, which a task has asked for some blocks of the shuffle before. */
  static FollowingBlocks known(MapOutputTracker tracker, int shuffle) {
    return (first, end) -> {
      try {
        return BlocksByWorker.of(tracker, shuffle, 0, Integer.MAX_VALUE, first, end).each();
      } catch (Exception e) { // maps have been lost, or the application ends: their tasks find out
        LoggerFactory.getLogger(FollowingBlocks.class).debug("shuffle {} is not read ahead: {}", shuffle, e.toString());
        return List.of();
      }
    };
  }
}
