package org.apache.spark.shuffle.flight.realtime;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.PartitionEnd;
import org.apache.spark.shuffle.flight.push.PutStream;
import org.apache.spark.shuffle.flight.rows.ColumnPacker;
import org.apache.spark.shuffle.flight.rows.RowCodec;
import org.apache.spark.shuffle.flight.rows.RowFormat;
import org.apache.spark.shuffle.flight.rows.RowHeader;
import org.apache.spark.shuffle.flight.rows.RowPath;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows of one map task on their way to a relay: copied into a buffer per partition, which becomes a block when it is
 * full or the flush timeout has passed.
 *
 * <p>The task's thread writes, and waits for credit; a timer sends what has waited, if there is credit, and says now and
 * then that the task is alive. A block is
 * rows as {@link RowFormat} has them, or these packed.
 */
final class RelayPush implements AutoCloseable {
  private static final int LARGEST_BUFFER = 32 << 10;
  private static final int SMALLEST_BUFFER = 1 << 10;
  private static final long KEEP_ALIVE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final PutStream stream;
  private final int bufferSize;
  private final byte[][] buffers;
  private final int[] used;
  private final int[] rows;
  private final ColumnPacker packer;
  private final ByteBuffer header = ByteBuffer.allocate(RowHeader.PACKED_BYTES);
  private final BlockBatch batch;
  private final BlockTotals totals = new BlockTotals();
  private final BlockTotals[] parts;
  private final ReentrantLock lock = new ReentrantLock();
  private final ScheduledFuture<?> ticks;
  private int waiting;
  private long sentRows;
  private boolean over;
  private boolean committed;
  private volatile IOException failure;
  private volatile long spoken = System.nanoTime();

  /** @param fields of a row */
  RelayPush(PutStream stream, ScheduledExecutorService timer, int partitions, int fields, FlightConf conf) {
    this.stream = stream;
    this.bufferSize =
        Math.min(
            conf.batchSize(),
            Math.max(SMALLEST_BUFFER, Math.min(LARGEST_BUFFER, RowPath.share(partitions, conf.rowMemory()))));
    this.buffers = new byte[partitions][];
    this.used = new int[partitions];
    this.rows = new int[partitions];
    this.parts = new BlockTotals[partitions];
    this.packer = conf.packRows() ? new ColumnPacker(ColumnPacker.words(fields)) : null;
    this.batch = new BlockBatch(conf.batchSize());
    this.ticks = PeriodicTask.every(timer, conf.flushTimeout(), "flushing rows to a relay", this::tick);
  }

  /** Copies a row behind those of its partition; waits for credit when there is no room. */
  void write(int partition, UnsafeRow row) throws IOException {
    int needed = RowFormat.length(row);
    lock.lock();
    try {
      if (failure != null) {
        throw failure;
      }
      if (needed > bufferSize) {
        flush();
        alone(partition, row, needed);
        return;
      }
      if (needed > bufferSize - used[partition] || needed > batch.room() - waiting) {
        flush();
      }
      if (buffers[partition] == null) {
        buffers[partition] = new byte[bufferSize];
      }
      RowFormat.put(row, buffers[partition], used[partition]);
      used[partition] += needed;
      rows[partition]++;
      waiting += needed;
    } finally {
      lock.unlock();
    }
  }

  /** A row that no buffer holds is a block and a message. */
  private void alone(int partition, UnsafeRow row, int needed) throws IOException {
    byte[] bytes = new byte[needed];
    RowFormat.put(row, bytes, 0);
    BlockBatch own = new BlockBatch(needed);
    own.append(bytes, 0, needed);
    own.endBlock(partition, 1, totals, part(partition));
    sentRows++;
    stream.send(own, 0);
    spoken = System.nanoTime();
  }

  private BlockTotals part(int partition) {
    if (parts[partition] == null) {
      parts[partition] = new BlockTotals();
    }
    return parts[partition];
  }

  /** Sends what is buffered, in one message. */
  private void flush() throws IOException {
    if (waiting == 0) {
      return;
    }
    for (int partition = 0; partition < buffers.length; partition++) {
      if (used[partition] > 0) {
        append(buffers[partition], used[partition]);
        batch.endBlock(partition, rows[partition], totals, part(partition));
        sentRows += rows[partition];
        used[partition] = 0;
        rows[partition] = 0;
      }
    }
    waiting = 0;
    stream.send(batch, 0);
    batch.clear();
    spoken = System.nanoTime();
  }

  /** Adds rows to the open block: packed by column and behind a header, or as they are where that is not more. */
  private void append(byte[] block, int length) {
    int packed = packer == null ? 0 : packer.pack(block, length);
    if (packed > 0 && RowHeader.PACKED_BYTES + packed < length) {
      RowHeader.putPacked(header, RowCodec.STORED, packed, length, packed);
      batch.append(header.array(), 0, RowHeader.PACKED_BYTES);
      batch.append(packer.packed(), 0, packed);
    } else {
      batch.append(block, 0, length);
    }
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
   * Sends the rest, states that this was all, and returns when readers have it.
   *
   * @param written rows that were given to {@link #write}
   */
  void commit(long written) throws IOException {
    lock.lock();
    try {
      if (failure != null) {
        throw failure;
      }
      flush();
      over = true;
    } finally {
      lock.unlock();
    }
    ticks.cancel(false);
    if (sentRows != written) {
      throw new IOException(written + " rows were written, but " + sentRows + " were sent: please report this");
    }
    List<PartitionEnd> ends = new ArrayList<>();
    for (int partition = 0; partition < parts.length; partition++) {
      if (parts[partition] != null) {
        ends.add(PartitionEnd.newBuilder().setPartition(partition).setTotals(parts[partition].toMessage()).build());
      }
    }
    stream.commit(totals.toMessage(), ends);
    committed = true;
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
  }
}
