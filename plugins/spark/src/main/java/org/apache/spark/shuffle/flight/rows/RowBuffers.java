package org.apache.spark.shuffle.flight.rows;

import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * A buffer of rows per partition, as {@link RowFormat} has them.
 *
 * <p>The buffers are memory of the task, as much as their arrays take. When Spark grants no more, the fullest one is handed on,
 * so little memory makes blocks smaller but does not make one of each row; when another operator of the task needs memory,
 * all rows are handed on and the buffers given back. Used by the task's thread.
 */
public final class RowBuffers extends MemoryConsumer {
  private static final int FIRST_BYTES = 4 << 10;

  /** Where rows go when there is no room for more of their partition. */
  public interface Sink {
    /** Takes {@code count} whole rows: the first {@code length} bytes of {@code rows}, an array that is used again. */
    void write(int partition, byte[] rows, int length, int count) throws IOException;
  }

  private final Thread owner = Thread.currentThread();
  private final int bufferSize;
  private final Sink sink;
  private final byte[][] buffers;
  private final int[] used;
  private final int[] counts; // of the rows in the buffers
  private int limit;
  private boolean tight; // Spark has refused memory
  private long reserved;

  public RowBuffers(TaskMemoryManager memory, int partitions, int bufferSize, Sink sink) {
    super(memory, bufferSize, MemoryMode.ON_HEAP);
    this.bufferSize = bufferSize;
    this.sink = sink;
    this.buffers = new byte[partitions][];
    this.used = new int[partitions];
    this.counts = new int[partitions];
    this.limit = bufferSize;
  }

  /** From now on the rows of a partition are handed on before they are more than {@code bytes}, and not than a buffer. */
  public void handOnAt(int bytes) {
    limit = Math.min(bytes, bufferSize);
  }

  /** Takes memory of the task for {@code bytes} of who gets the rows, until {@link #close}; false when it has not so much. */
  public boolean reserve(long bytes) {
    boolean granted = granted(bytes);
    reserved += granted ? bytes : 0;
    return granted;
  }

  /** Frees the buffers and what was reserved. */
  public void close() {
    free();
    freeMemory(reserved);
    reserved = 0;
  }

  /** Copies a row behind those of its partition. */
  public void append(int partition, UnsafeRow row) throws IOException {
    int needed = RowFormat.length(row);
    if (buffers[partition] != null && needed > limit - used[partition]) {
      handOn(partition);
    }
    if (needed > bufferSize || !hasRoom(partition, needed)) {
      alone(partition, row, needed);
      return;
    }
    RowFormat.put(row, buffers[partition], used[partition]);
    used[partition] += needed;
    counts[partition]++;
  }

  /** A row that no buffer holds: it is larger than one, or there is no memory for one. */
  private void alone(int partition, UnsafeRow row, int needed) throws IOException {
    long granted = acquireMemory(needed); // counts the row if there is room for it; it exists already either way
    try {
      byte[] rows = new byte[needed];
      RowFormat.put(row, rows, 0);
      sink.write(partition, rows, needed, 1);
    } finally {
      freeMemory(granted);
    }
  }

  /**
   * Makes room for a row behind those of its partition. Arrays begin small and grow with use, because clearing a large one
   * costs more than a few rows do, and the task keeps the memory that its rows do not fill.
   *
   * @return false when there is no memory for it; nothing of the partition is buffered then
   */
  private boolean hasRoom(int partition, int needed) throws IOException {
    byte[] buffer = buffers[partition];
    int length = buffer == null ? 0 : buffer.length;
    if (needed <= length - used[partition]) {
      return true;
    }
    int wished = buffer == null ? Math.min(bufferSize, FIRST_BYTES) : Math.min(4 * length, limit);
    int size = Math.max(wished, used[partition] + needed);
    if (acquired(partition, size - length)) {
      buffers[partition] = buffer == null ? new byte[size] : Arrays.copyOf(buffer, size);
      return true;
    }
    handOn(partition);
    if (buffers[partition] != null && needed <= length) {
      return true; // the buffer it has is enough for now
    }
    free(partition);
    return false;
  }

  /** Takes memory of the task. While Spark has none, the fullest buffer is handed on and freed, unless it is {@code partition}'s. */
  private boolean acquired(int partition, int bytes) throws IOException {
    while (!granted(bytes)) {
      tight = true;
      int fullest = fullest();
      if (fullest < 0 || fullest == partition) {
        return false;
      }
      handOn(fullest);
      free(fullest);
    }
    return true;
  }

  /** The partition that has most rows in its buffer; -1 when none has a buffer. */
  private int fullest() {
    int fullest = -1;
    for (int partition = 0; partition < buffers.length; partition++) {
      if (buffers[partition] != null && (fullest < 0 || used[partition] > used[fullest])) {
        fullest = partition;
      }
    }
    return fullest;
  }

  private boolean granted(long bytes) {
    long granted = acquireMemory(bytes);
    if (granted < bytes) {
      freeMemory(granted);
      return false;
    }
    return true;
  }

  /** Hands on what is buffered; the buffers stay, unless memory is tight. */
  public void handOnAll() throws IOException {
    for (int partition = 0; partition < buffers.length; partition++) {
      handOn(partition);
    }
  }

  private void handOn(int partition) throws IOException {
    int length = used[partition];
    if (length > 0) {
      int count = counts[partition];
      used[partition] = 0;
      counts[partition] = 0;
      sink.write(partition, buffers[partition], length, count);
    }
    if (tight) {
      free(partition); // others have use for it
    }
  }

  /** Hands on what is buffered and frees the buffers; the bytes freed. */
  private long giveBack() throws IOException {
    handOnAll();
    return free();
  }

  /** Frees the buffers, whatever is in them; the bytes freed. */
  long free() {
    long freed = 0;
    for (int partition = 0; partition < buffers.length; partition++) {
      freed += free(partition);
    }
    return freed;
  }

  private int free(int partition) {
    int freed = buffers[partition] == null ? 0 : buffers[partition].length;
    buffers[partition] = null;
    used[partition] = 0;
    counts[partition] = 0;
    freeMemory(freed);
    return freed;
  }

  /** Asked by Spark. Between two rows only, so not by another thread of the task, and not by this consumer's own need. */
  @Override
  public long spill(long size, MemoryConsumer trigger) throws IOException {
    return trigger == this || Thread.currentThread() != owner ? 0 : giveBack();
  }
}
