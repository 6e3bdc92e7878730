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
   * Reads {@code block} and gives it to {@code listener}.
   *
   * @param rows of the file's index: those of all of the block's partitions
   * @throws IOException it cannot be had from there; the listener has heard nothing then
   */
  static void give(WantedBlock block, Path path, ByteBuffer rows, BlockFetchingListener listener) throws IOException {
    ByteBuf data = read(block, path, rows);
    try {
      listener.onBlockFetchSuccess(block.blockId(), new NettyManagedBuffer(data));
    } finally {
      data.release(); // the listener holds it as well, until the task has read it
    }
  }

  private static ByteBuf read(WantedBlock block, Path path, ByteBuffer rows) throws IOException {
    int size = (int) size(block, rows);
    if (size < 0) {
      throw new IOException("the rows of " + path + " are of something else than " + block.blockId());
    }
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

  /** Bytes of all {@code rows}; -1 when they are not those of {@code block}, or more than fit into a buffer. */
  static long size(WantedBlock block, ByteBuffer rows) {
    long size = 0;
    boolean fits = rows.limit() > 0 && rows.limit() % FileIndex.ROW_BYTES == 0;
    for (int row = 0; fits && row < rows.limit(); row += FileIndex.ROW_BYTES) {
      long length = rows.getLong(row + 8);
      fits = block.holds(block.map(), rows.getInt(row)) && length >= 0 && length == rows.getLong(row + 16)
          && rows.getLong(row + 32) >= 0;
      size += length;
      fits &= size <= Integer.MAX_VALUE - 8;
    }
    return fits ? size : -1;
  }

  private static void fill(ByteBuf data, Path path, ByteBuffer rows) throws IOException {
    Object file = identity(path);
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      for (int row = 0; row < rows.limit(); row += FileIndex.ROW_BYTES) {
        readFully(channel, rows.getLong(row + 32), data, (int) rows.getLong(row + 8));
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
