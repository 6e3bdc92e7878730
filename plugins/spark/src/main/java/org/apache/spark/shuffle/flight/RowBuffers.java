package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/**
 * A buffer of rows per partition, in {@code UnsafeRowSerializer}'s format: a big-endian length and the row's bytes.
 *
 * <p>The buffers are memory of the task: what Spark does not grant is not buffered, and when another operator of the task
 * needs memory, all rows are handed on and the buffers given back. Used by the task's thread.
 */
final class RowBuffers extends MemoryConsumer {
  private static final int LENGTH_BYTES = 4;
  private static final int FIRST_BYTES = 4 << 10;

  /** Where rows go when there is no room for more of their partition. */
  interface Sink {
    /** Takes whole rows: the first {@code length} bytes of {@code rows}, an array that is used again. */
    void write(int partition, byte[] rows, int length) throws IOException;
  }

  private final Thread owner = Thread.currentThread();
  private final int bufferSize;
  private final Sink sink;
  private final byte[][] buffers;
  private final int[] used;
  private int limit;
  private long reserved;

  RowBuffers(TaskMemoryManager memory, int partitions, int bufferSize, Sink sink) {
    super(memory, bufferSize, MemoryMode.ON_HEAP);
    this.bufferSize = bufferSize;
    this.sink = sink;
    this.buffers = new byte[partitions][];
    this.used = new int[partitions];
    this.limit = bufferSize;
  }

  /** From now on the rows of a partition are handed on before they are more than {@code bytes}, and not than a buffer. */
  void handOnAt(int bytes) {
    limit = Math.min(bytes, bufferSize);
  }

  /** Takes memory of the task for {@code bytes} of who gets the rows, until {@link #close}; false when it has not so much. */
  boolean reserve(long bytes) {
    boolean granted = granted(bytes);
    reserved += granted ? bytes : 0;
    return granted;
  }

  /** Frees the buffers and what was reserved. */
  void close() {
    free();
    freeMemory(reserved);
    reserved = 0;
  }

  /** Copies a row behind those of its partition. */
  void append(int partition, UnsafeRow row) throws IOException {
    int needed = Math.addExact(row.getSizeInBytes(), LENGTH_BYTES);
    if (buffers[partition] != null && needed > limit - used[partition]) {
      handOn(partition);
    }
    if (needed > bufferSize) {
      alone(partition, row, needed);
      return;
    }
    if (buffers[partition] == null && !newBuffer(partition)) {
      alone(partition, row, needed);
      return;
    }
    if (needed > buffers[partition].length - used[partition]) {
      grow(partition, needed);
    }
    copy(row, buffers[partition], used[partition]);
    used[partition] += needed;
  }

  private static void copy(UnsafeRow row, byte[] target, int at) {
    int size = row.getSizeInBytes();
    target[at] = (byte) (size >>> 24);
    target[at + 1] = (byte) (size >>> 16);
    target[at + 2] = (byte) (size >>> 8);
    target[at + 3] = (byte) size;
    Object base = row.getBaseObject();
    long offset = row.getBaseOffset();
    if (base instanceof byte[] bytes) { // as projections make them; copied with less around it than by Platform
      System.arraycopy(bytes, (int) (offset - Platform.BYTE_ARRAY_OFFSET), target, at + LENGTH_BYTES, size);
    } else {
      Platform.copyMemory(base, offset, target, Platform.BYTE_ARRAY_OFFSET + at + LENGTH_BYTES, size);
    }
  }

  /** A row that no buffer holds: it is larger than one, or there is no memory for one. */
  private void alone(int partition, UnsafeRow row, int needed) throws IOException {
    long granted = acquireMemory(needed); // counts the row if there is room for it; it exists already either way
    try {
      byte[] rows = new byte[needed];
      copy(row, rows, 0);
      sink.write(partition, rows, needed);
    } finally {
      freeMemory(granted);
    }
  }

  /** False when Spark has no memory for it, even after all other buffers were given back. */
  private boolean newBuffer(int partition) throws IOException {
    if (!granted(bufferSize) && (giveBack() == 0 || !granted(bufferSize))) {
      return false;
    }
    buffers[partition] = new byte[Math.min(bufferSize, FIRST_BYTES)];
    return true;
  }

  /** What Spark granted is a whole buffer. The array begins smaller, because clearing it costs more than a few rows do. */
  private void grow(int partition, int needed) {
    byte[] buffer = buffers[partition];
    int size = Math.max(Math.min(4 * buffer.length, limit), used[partition] + needed);
    buffers[partition] = Arrays.copyOf(buffer, size);
  }

  private boolean granted(long bytes) {
    long granted = acquireMemory(bytes);
    if (granted < bytes) {
      freeMemory(granted);
      return false;
    }
    return true;
  }

  /** Hands on what is buffered; the buffers stay. */
  void handOnAll() throws IOException {
    for (int partition = 0; partition < buffers.length; partition++) {
      handOn(partition);
    }
  }

  private void handOn(int partition) throws IOException {
    int length = used[partition];
    if (length > 0) {
      used[partition] = 0;
      sink.write(partition, buffers[partition], length);
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
      if (buffers[partition] != null) {
        freed += bufferSize;
        buffers[partition] = null;
        used[partition] = 0;
      }
    }
    freeMemory(freed);
    return freed;
  }

  /** Asked by Spark. Between two rows only, so not by another thread of the task, and not by this consumer's own need. */
  @Override
  public long spill(long size, MemoryConsumer trigger) throws IOException {
    return trigger == this || Thread.currentThread() != owner ? 0 : giveBack();
  }
}
