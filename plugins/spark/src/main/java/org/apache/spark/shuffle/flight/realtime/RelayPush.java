package org.apache.spark.shuffle.flight.realtime;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.PartitionEnd;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.push.PutStream;
import org.apache.spark.shuffle.flight.rows.RowFormat;
import org.apache.spark.shuffle.flight.rows.RowPath;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows of one map task on their way to one worker, for the partitions that it relays: copied into a buffer per
 * partition, which becomes a block when it is full or the flush timeout has passed.
 *
 * <p>The task's thread writes, and waits for credit; a timer sends what has waited, if there is credit, and says now and
 * then that the task is alive. While the task waits for one worker, the timer serves its pushes to the others.
 */
final class RelayPush implements AutoCloseable {
  private static final int LARGEST_BUFFER = 32 << 10;
  private static final int SMALLEST_BUFFER = 1 << 10;
  private static final long KEEP_ALIVE_NANOS = TimeUnit.SECONDS.toNanos(5);

  /** Rows of a partition that were not sent, and the totals of those that were. */
  private static final class Partition {
    private final BlockTotals totals = new BlockTotals();
    private byte[] buffer;
    private int used;
    private int rows;
  }

  private final PutStream stream;
  private final RelayBlocks blocks;
  private final int bufferSize;
  private final Partition[] partitions;
  private final BlockBatch batch;
  private final BlockTotals totals = new BlockTotals();
  private final ReentrantLock lock = new ReentrantLock();
  private final ScheduledFuture<?> ticks;
  private int waiting;
  private long sentRows;
  private boolean over;
  private boolean committed;
  private volatile IOException failure;
  private volatile long spoken = System.nanoTime();

  /**
   * @param blocks makes them for this push alone, which closes it
   * @param partitions of the shuffle
   */
  RelayPush(PutStream stream, RelayBlocks blocks, ScheduledExecutorService timer, int partitions, FlightConf conf) {
    this.stream = stream;
    this.blocks = blocks;
    this.bufferSize =
        Math.min(
            conf.batchSize(),
            Math.max(SMALLEST_BUFFER, Math.min(LARGEST_BUFFER, RowPath.share(partitions, conf.rowMemory()))));
    this.partitions = new Partition[partitions];
    this.batch = new BlockBatch(conf.batchSize());
    this.ticks = PeriodicTask.every(timer, conf.flushTimeout(), "flushing rows to a relay", this::tick);
  }

  /** Copies a row behind those of its partition; waits for credit when there is no room. */
  void write(int partition, UnsafeRow row) throws IOException {
    int needed = RowFormat.length(row);
    lock.lock();
    try {
      check();
      Partition its = partition(partition);
      if (needed > bufferSize) {
        flush();
        alone(partition, row, needed);
        return;
      }
      if (needed > bufferSize - its.used || needed > batch.room() - waiting) {
        flush();
      }
      if (its.buffer == null) {
        its.buffer = new byte[bufferSize];
      }
      RowFormat.put(row, its.buffer, its.used);
      its.used += needed;
      its.rows++;
      waiting += needed;
    } finally {
      lock.unlock();
    }
  }

  private Partition partition(int partition) {
    if (partitions[partition] == null) {
      partitions[partition] = new Partition();
    }
    return partitions[partition];
  }

  private void check() throws IOException {
    if (failure != null) {
      throw failure;
    }
  }

  /** A row that no buffer holds is a block and a message. */
  private void alone(int partition, UnsafeRow row, int needed) throws IOException {
    byte[] bytes = new byte[needed];
    RowFormat.put(row, bytes, 0);
    BlockBatch own = new BlockBatch(needed);
    endBlock(own, partition, bytes, needed, 1, stream.wouldWait(needed));
    send(own);
  }

  /** Sends what is buffered, in one message. */
  private void flush() throws IOException {
    if (waiting == 0) {
      return;
    }
    boolean compress = stream.wouldWait(waiting);
    for (int partition = 0; partition < partitions.length; partition++) {
      Partition its = partitions[partition];
      if (its != null && its.used > 0) {
        endBlock(batch, partition, its.buffer, its.used, its.rows, compress);
        its.used = 0;
        its.rows = 0;
      }
    }
    waiting = 0;
    send(batch);
    batch.clear();
  }

  private void endBlock(BlockBatch target, int partition, byte[] rows, int length, int count, boolean compress) {
    blocks.append(target, rows, length, compress);
    target.endBlock(partition, count, totals, partition(partition).totals);
    sentRows += count;
  }

  private void send(BlockBatch full) throws IOException {
    stream.send(full, 0);
    spoken = System.nanoTime();
  }

  /** On the timer's thread: must not wait, neither for the task nor for credit. */
  private void tick() {
    try {
      if (lock.tryLock()) {
        try {
          if (!over && failure == null && waiting > 0 && stream.admits(waiting)) {
            flush();
          }
        } finally {
          lock.unlock();
        }
      }
      if (System.nanoTime() - spoken > KEEP_ALIVE_NANOS) {
        spoken = System.nanoTime();
        stream.keepAlive();
      }
    } catch (IOException e) {
      ticks.cancel(false);
      failure = e;
    }
  }

  /**
   * Sends the rest. The push to each worker does before one of them ends: a worker may have refused this attempt.
   *
   * @throws IOException what the worker has ended the stream with, if it has
   */
  void sendRest() throws IOException {
    lock.lock();
    try {
      check();
      flush();
      stream.check();
    } finally {
      lock.unlock();
    }
  }

  /** States that what was sent is all. */
  void end() throws IOException {
    List<PartitionEnd> ends = new ArrayList<>();
    lock.lock();
    try {
      check();
      over = true;
      for (int partition = 0; partition < partitions.length; partition++) {
        if (partitions[partition] != null) {
          Totals part = partitions[partition].totals.toMessage();
          ends.add(PartitionEnd.newBuilder().setPartition(partition).setTotals(part).build());
        }
      }
    } finally {
      lock.unlock();
    }
    ticks.cancel(false);
    stream.end(totals.toMessage(), ends);
  }

  /** Returns when readers have all of it. */
  void awaitRead() throws IOException {
    stream.awaitRelayed(totals.toMessage());
    committed = true;
  }

  /** Rows sent. */
  long rows() {
    return sentRows;
  }

  /** Bytes sent. */
  long bytes() {
    return totals.bytes();
  }

  /** Gives up what is not committed: readers then fail, because they may have a part of it. */
  @Override
  public void close() {
    ticks.cancel(false);
    if (!committed) {
      stream.abort();
    }
    lock.lock(); // a tick may be under way
    try {
      over = true;
      blocks.close();
    } finally {
      lock.unlock();
    }
  }
}
