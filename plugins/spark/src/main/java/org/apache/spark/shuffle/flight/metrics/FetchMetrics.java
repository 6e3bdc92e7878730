package org.apache.spark.shuffle.flight.metrics;

import java.util.function.LongConsumer;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;

/** Spark's metrics of a reader, with a listener to the waits for blocks. Called per block, not per record. */
record FetchMetrics(ShuffleReadMetricsReporter metrics, LongConsumer waited) implements ShuffleReadMetricsReporter {
  @Override
  public void incRemoteBlocksFetched(long more) {
    metrics.incRemoteBlocksFetched(more);
  }

  @Override
  public void incLocalBlocksFetched(long more) {
    metrics.incLocalBlocksFetched(more);
  }

  @Override
  public void incRemoteBytesRead(long more) {
    metrics.incRemoteBytesRead(more);
  }

  @Override
  public void incRemoteBytesReadToDisk(long more) {
    metrics.incRemoteBytesReadToDisk(more);
  }

  @Override
  public void incLocalBytesRead(long more) {
    metrics.incLocalBytesRead(more);
  }

  @Override
  public void incFetchWaitTime(long more) {
    waited.accept(more);
    metrics.incFetchWaitTime(more);
  }

  @Override
  public void incRecordsRead(long more) {
    metrics.incRecordsRead(more);
  }

  @Override
  public void incCorruptMergedBlockChunks(long more) {
    metrics.incCorruptMergedBlockChunks(more);
  }

  @Override
  public void incMergedFetchFallbackCount(long more) {
    metrics.incMergedFetchFallbackCount(more);
  }

  @Override
  public void incRemoteMergedBlocksFetched(long more) {
    metrics.incRemoteMergedBlocksFetched(more);
  }

  @Override
  public void incLocalMergedBlocksFetched(long more) {
    metrics.incLocalMergedBlocksFetched(more);
  }

  @Override
  public void incRemoteMergedChunksFetched(long more) {
    metrics.incRemoteMergedChunksFetched(more);
  }

  @Override
  public void incLocalMergedChunksFetched(long more) {
    metrics.incLocalMergedChunksFetched(more);
  }

  @Override
  public void incRemoteMergedBytesRead(long more) {
    metrics.incRemoteMergedBytesRead(more);
  }

  @Override
  public void incLocalMergedBytesRead(long more) {
    metrics.incLocalMergedBytesRead(more);
  }

  @Override
  public void incRemoteReqsDuration(long more) {
    metrics.incRemoteReqsDuration(more);
  }

  @Override
  public void incRemoteMergedReqsDuration(long more) {
    metrics.incRemoteMergedReqsDuration(more);
  }
}
