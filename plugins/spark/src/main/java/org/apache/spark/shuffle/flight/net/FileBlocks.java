package org.apache.spark.shuffle.flight.net;

import io.netty.buffer.ByteBuf;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.zip.CRC32C;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
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
    int[] ends = ends(blocks, rows);
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
  private static int[] ends(List<WantedBlock> blocks, ByteBuffer rows) {
    if (rows.limit() % FileIndex.ROW_BYTES != 0) {
      return null;
    }
    int[] ends = new int[blocks.size()];
    long size = 0;
    int row = 0;
    for (int i = 0; i < ends.length; i++) {
      WantedBlock block = blocks.get(i);
      int first = row;
      for (; row < rows.limit() && block.holds(block.map(), rows.getInt(row)); row += FileIndex.ROW_BYTES) {
        long length = rows.getLong(row + 8);
        size += length;
        boolean fits = length >= 0 && length == rows.getLong(row + 16) && rows.getLong(row + 32) >= 0;
        if (!fits || size > Integer.MAX_VALUE - 8) {
          return null;
        }
      }
      if (row == first) {
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
      int row = 0;
      while (row < rows.limit()) {
        long start = rows.getLong(row + 32);
        long end = start;
        for (; row < rows.limit() && rows.getLong(row + 32) == end; row += FileIndex.ROW_BYTES) {
          end += rows.getLong(row + 8); // what lies side by side is read at once
        }
        readFully(channel, start, data, (int) (end - start));
      }
    }
    if (!identity(path).equals(file)) {
      throw new IOException(path + " was replaced while it was read");
    }
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

  private static void readFully(FileChannel channel, long offset, ByteBuf target, int length) throws IOException {
    int done = 0;
    while (done < length) {
      int read = target.writeBytes(channel, offset + done, length - done);
      if (read < 0) {
        throw new EOFException("the file ends at " + (offset + done));
      }
      done += read;
    }
  }
}
