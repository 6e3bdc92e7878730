package org.apache.spark.shuffle.flight.blocks;

import java.util.List;

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
}
