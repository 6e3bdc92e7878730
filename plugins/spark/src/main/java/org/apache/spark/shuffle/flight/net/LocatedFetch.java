package org.apache.spark.shuffle.flight.net;

import com.google.protobuf.ByteString;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import java.util.zip.CRC32C;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.util.NettyUtils;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.LocateBlocksRequest;
import org.apache.spark.shuffle.flight.proto.LocatedBlocks;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One request of Spark's fetcher, answered from the worker's files: the worker says where the blocks lie, they are read and
 * their checksums verified. What cannot be had this way, block by block, goes over the wire.
 *
 * <p>The worker may write over the file of a removed shuffle, but takes its name away before (docs/protocol.md, Hand-over). So
 * what was read counts only if the path names the same file afterwards.
 */
final class LocatedFetch {
  private static final Logger LOG = LoggerFactory.getLogger(LocatedFetch.class);
  private static final int ROW_BYTES = 40;

  /**
   * Spark's own pool of buffers for what is fetched, outside of the heap: there a file is read without another copy, and an
   * array of a MiB or more for each block would cost a collection of garbage for every few hundred.
   */
  private static final ByteBufAllocator POOL = NettyUtils.getSharedPooledByteBufAllocator(true, true);

  private final BlockFetcher fetcher;
  private final WorkerAddress worker;
  private final BlockFetchingListener listener;
  private final Consumer<List<WantedBlock>> wire;
  private final Set<WantedBlock> left;
  private final CRC32C crc = new CRC32C();

  /** @param wire takes the blocks that were not answered here, last */
  LocatedFetch(
      BlockFetcher fetcher, WorkerAddress worker, List<WantedBlock> wanted, BlockFetchingListener listener,
      Consumer<List<WantedBlock>> wire) {
    this.fetcher = fetcher;
    this.worker = worker;
    this.listener = listener;
    this.wire = wire;
    this.left = new LinkedHashSet<>(wanted);
  }

  /** Blocks; each wanted block is answered once, here or by the wire. */
  void run() {
    try {
      ByteString nonce = fetcher.handOver().nonce(worker, fetcher.shuffle().getApp());
      if (nonce != null) {
        answer(locate(nonce));
      }
    } catch (IOException | InvalidPathException e) {
      fetcher.handOver().failed(worker, e instanceof IOException failure ? failure : new IOException(e));
    } finally {
      if (!left.isEmpty()) {
        wire.accept(List.copyOf(left));
      }
    }
  }

  private List<byte[]> locate(ByteString nonce) throws IOException {
    GetTicket.Builder ticket = GetTicket.newBuilder().setShuffle(fetcher.shuffle());
    left.forEach(block -> ticket.addRanges(block.toMessage()));
    LocateBlocksRequest request = LocateBlocksRequest.newBuilder().setNonce(nonce).setTicket(ticket).build();
    return fetcher.handOver().act(worker, "locate", request, fetcher.handOver().timeout());
  }

  private void answer(List<byte[]> results) throws IOException {
    List<WantedBlock> wanted = List.copyOf(left);
    if (results.size() != wanted.size()) {
      throw new IOException(worker + " located " + results.size() + " of " + wanted.size() + " ranges");
    }
    for (int i = 0; i < wanted.size() && !fetcher.closed(); i++) {
      WantedBlock block = wanted.get(i);
      LocatedBlocks located = LocatedBlocks.parseFrom(results.get(i));
      ByteBuf data;
      try {
        data = read(block, located);
      } catch (IOException e) {
        LOG.info("{} goes over the wire: {}", block.blockId(), e.toString());
        continue;
      }
      left.remove(block);
      try {
        listener.onBlockFetchSuccess(block.blockId(), new NettyManagedBuffer(data));
      } finally {
        data.release(); // the listener holds it as well, until the task has read it
      }
    }
  }

  private ByteBuf read(WantedBlock block, LocatedBlocks located) throws IOException {
    if (located.hasError()) {
      throw FlightException.reported(worker.toString(), located.getError());
    }
    ByteBuffer rows = located.getIndex().asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    int size = size(block, located, rows);
    ByteBuf data;
    try {
      data = POOL.directBuffer(size, size);
    } catch (OutOfMemoryError e) { // outside of the heap: the wire needs some of the heap
      throw new IOException("no memory for " + size + " bytes: " + e.getMessage(), e);
    }
    try {
      fill(data, Path.of(located.getPath()), rows);
      check(data, located.getPath(), rows);
      return data.retain();
    } finally {
      data.release();
    }
  }

  private static void fill(ByteBuf data, Path path, ByteBuffer rows) throws IOException {
    Object file = identity(path);
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      for (int row = 0; row < rows.limit(); row += ROW_BYTES) {
        readFully(channel, rows.getLong(row + 32), data, (int) rows.getLong(row + 8));
      }
    }
    if (!identity(path).equals(file)) {
      throw new IOException(path + " was replaced while it was read");
    }
  }

  private void check(ByteBuf data, String path, ByteBuffer rows) throws IOException {
    int start = 0;
    for (int row = 0; row < rows.limit(); row += ROW_BYTES) {
      int length = (int) rows.getLong(row + 8);
      crc.reset();
      crc.update(data.nioBuffer(start, length));
      if ((int) crc.getValue() != rows.getInt(row + 4)) {
        throw new IOException("checksum differs in " + path);
      }
      start += length;
    }
  }

  /** Bytes of all rows, which must be what was asked for. */
  private int size(WantedBlock block, LocatedBlocks located, ByteBuffer rows) throws IOException {
    long size = 0;
    boolean fits = rows.limit() > 0 && rows.limit() % ROW_BYTES == 0 && located.getOutput().getMap() == block.map();
    for (int row = 0; fits && row < rows.limit(); row += ROW_BYTES) {
      long length = rows.getLong(row + 8);
      fits = block.holds(block.map(), rows.getInt(row)) && length >= 0 && length == rows.getLong(row + 16)
          && rows.getLong(row + 32) >= 0;
      size += length;
      fits &= size <= Integer.MAX_VALUE - 8;
    }
    if (!fits) {
      throw new IOException(worker + " located something else than " + block.blockId());
    }
    return (int) size;
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
