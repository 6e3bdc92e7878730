package org.apache.spark.shuffle.flight.blocks;

import java.util.List;
import org.apache.spark.MapOutputTracker;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The blocks of a shuffle as {@code tracker} knows them in this process, which a task has asked for some of them before. */
public record KnownBlocks(MapOutputTracker tracker, int shuffle) implements FollowingBlocks {
  private static final Logger LOG = LoggerFactory.getLogger(KnownBlocks.class);

  @Override
  public List<Following> of(int first, int end) {
    try {
      return BlocksByWorker.of(tracker, shuffle, 0, Integer.MAX_VALUE, first, end).each();
    } catch (Exception e) { // maps have been lost, or the application ends: their tasks find out
      LOG.debug("shuffle {} is not read ahead: {}", shuffle, e.toString());
      return List.of();
    }
  }
}
