package org.apache.spark.shuffle.flight.local;

import io.netty.buffer.ByteBuf;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Comparator;
import java.util.List;
import java.util.stream.IntStream;
import java.util.zip.CRC32C;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.wire.FetchedMemory;

/**
 * Reads blocks from a worker's files and verifies them.
 *
 * <p>The worker may write over the file of a removed shuffle, but takes its name away before (docs/protocol.md, Hand-over). So
 * what was read counts only if the path names the same file afterwards.
 */
final class FileBlocks {
  private FileBlocks() {}

  /**
   * Reads blocks of one map output and gives them to {@code listener}.
   *
   * @param blocks of partitions one behind the other
   * @param rows of the file's index: those of all of these partitions
   * @param most bytes that are read
   * @return their bytes; -1 when they have more, and the listener has heard nothing
   * @throws IOException not all of them can be had from there; the listener has heard nothing then
   */
  static long give(List<WantedBlock> blocks, Path path, ByteBuffer rows, long most, BlockFetchingListener listener)
      throws IOException {
    return give(blocks, path, rows, null, most, listener);
  }

  /**
   * As above, of any number of map outputs that lie in one file.
   *
   * @param rowEnds where the rows of each block end in {@code rows}; null: as their partitions say
   */
  static long give(
      List<WantedBlock> blocks, Path path, ByteBuffer rows, int[] rowEnds, long most, BlockFetchingListener listener)
      throws IOException {
    int[] ends = ends(blocks, rows, rowEnds);
    if (ends == null) {
      throw new IOException("the rows of " + path + " are of something else than " + blocks.get(0).blockId());
    }
    int size = ends[ends.length - 1];
    if (size > most) {
      return -1;
    }
    ByteBuf data = read(size, path, rows);
    try {
      int start = 0;
      for (int i = 0; i < ends.length; i++) {
        ByteBuf block = data.retainedSlice(start, ends[i] - start);
        start = ends[i];
        try {
          listener.onBlockFetchSuccess(blocks.get(i).blockId(), new NettyManagedBuffer(block));
        } finally {
          block.release(); // the listener holds it as well, until the task has read it
        }
      }
    } finally {
      data.release();
    }
    return size;
  }

  /**
   * Where each block ends when they lie one behind the other; null when {@code rows} are not those of {@code blocks}, of
   * which each has one at least, or more than fits into a buffer.
   */
  private static int[] ends(List<WantedBlock> blocks, ByteBuffer rows, int[] rowEnds) {
    if (rows.limit() % FileIndex.ROW_BYTES != 0) {
      return null;
    }
    int[] ends = new int[blocks.size()];
    long size = 0;
    int row = 0;
    for (int i = 0; i < ends.length; i++) {
      WantedBlock block = blocks.get(i);
      int first = row;
      int limit = rowEnds == null ? rows.limit() : rowEnds[i];
      for (; row < limit && block.holds(block.map(), rows.getInt(row)); row += FileIndex.ROW_BYTES) {
        long length = rows.getLong(row + 8);
        size += length;
        boolean fits = length >= 0 && length == rows.getLong(row + 16) && rows.getLong(row + 32) >= 0;
        if (!fits || size > Integer.MAX_VALUE - 8) {
          return null;
        }
      }
      if (row == first || (rowEnds != null && row != limit)) {
        return null;
      }
      ends[i] = (int) size;
    }
    return row == rows.limit() ? ends : null;
  }

  private static ByteBuf read(int size, Path path, ByteBuffer rows) throws IOException {
    ByteBuf data;
    try {
      data = FetchedMemory.POOL.buffer(size, size);
    } catch (OutOfMemoryError e) { // outside of the heap: over the wire the heap is taken then
      throw new IOException("no memory for " + size + " bytes: " + e.getMessage(), e);
    }
    try {
      fill(data, path, rows);
      check(data, path, rows);
      return data.retain();
    } finally {
      data.release();
    }
  }

  private static void fill(ByteBuf data, Path path, ByteBuffer rows) throws IOException {
    Object file = identity(path);
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      int[] order = order(rows);
      if (order == null) {
        fillInOrder(data, channel, rows);
      } else {
        fillScattered(data, channel, rows, order);
      }
    }
    if (!identity(path).equals(file)) {
      throw new IOException(path + " was replaced while it was read");
    }
  }

  private static void fillInOrder(ByteBuf data, FileChannel channel, ByteBuffer rows) throws IOException {
    int row = 0;
    int at = 0;
    while (row < rows.limit()) {
      long start = rows.getLong(row + 32);
      long end = start;
      for (; row < rows.limit() && rows.getLong(row + 32) == end; row += FileIndex.ROW_BYTES) {
        end += rows.getLong(row + 8); // what lies side by side is read at once
      }
      readFully(channel, start, data, at, (int) (end - start));
      at += (int) (end - start);
    }
    data.writerIndex(at);
  }

  /** The rows in the order of their offsets in the file; null when they are in it. */
  private static int[] order(ByteBuffer rows) {
    long before = 0;
    boolean inOrder = true;
    for (int row = 0; row < rows.limit() && inOrder; row += FileIndex.ROW_BYTES) {
      inOrder = rows.getLong(row + 32) >= before;
      before = rows.getLong(row + 32);
    }
    if (inOrder) {
      return null;
    }
    return IntStream.range(0, rows.limit() / FileIndex.ROW_BYTES)
        .boxed()
        .sorted(Comparator.comparingLong(number -> rows.getLong(number * FileIndex.ROW_BYTES + 32)))
        .mapToInt(Integer::intValue)
        .toArray();
  }

  /** Blocks of several partitions of several outputs: neighbours in the file are read at once, and put in their places. */
  private static void fillScattered(ByteBuf data, FileChannel channel, ByteBuffer rows, int[] order)
      throws IOException {
    int[] places = new int[order.length + 1];
    for (int number = 0; number < order.length; number++) {
      places[number + 1] = places[number] + (int) rows.getLong(number * FileIndex.ROW_BYTES + 8);
    }
    int next = 0;
    while (next < order.length) {
      int first = next;
      long start = rows.getLong(order[first] * FileIndex.ROW_BYTES + 32);
      long end = start;
      for (; next < order.length && rows.getLong(order[next] * FileIndex.ROW_BYTES + 32) == end; next++) {
        end += rows.getLong(order[next] * FileIndex.ROW_BYTES + 8);
      }
      ByteBuf run = FetchedMemory.POOL.buffer((int) (end - start), (int) (end - start));
      try {
        readFully(channel, start, run, 0, (int) (end - start));
        int at = 0;
        for (int i = first; i < next; i++) {
          int length = places[order[i] + 1] - places[order[i]];
          data.setBytes(places[order[i]], run, at, length);
          at += length;
        }
      } finally {
        run.release();
      }
    }
    data.writerIndex(places[order.length]);
  }

  private static void check(ByteBuf data, Path path, ByteBuffer rows) throws IOException {
    CRC32C crc = new CRC32C();
    int start = 0;
    for (int row = 0; row < rows.limit(); row += FileIndex.ROW_BYTES) {
      int length = (int) rows.getLong(row + 8);
      crc.reset();
      crc.update(data.nioBuffer(start, length));
      if ((int) crc.getValue() != rows.getInt(row + 4)) {
        throw new IOException("checksum differs in " + path);
      }
      start += length;
    }
  }

  private static Object identity(Path path) throws IOException {
    Object key = Files.readAttributes(path, BasicFileAttributes.class).fileKey();
    if (key == null) {
      throw new IOException("this system does not tell files apart");
    }
    return key;
  }

  private static void readFully(FileChannel channel, long offset, ByteBuf target, int at, int length)
      throws IOException {
    int done = 0;
    while (done < length) {
      int read = target.setBytes(at + done, channel, offset + done, length - done);
      if (read < 0) {
        throw new EOFException("the file ends at " + (offset + done));
      }
      done += read;
    }
  }
}
