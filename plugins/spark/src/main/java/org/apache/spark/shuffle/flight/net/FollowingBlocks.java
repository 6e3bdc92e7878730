package org.apache.spark.shuffle.flight.net;

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
   * Not called by a task's thread: for what Spark throws there the task would fail.
   *
   * @return the blocks of partitions {@code first} to before {@code end} that are not empty; none when they are not known
   */
  List<Following> of(int first, int end);
}
