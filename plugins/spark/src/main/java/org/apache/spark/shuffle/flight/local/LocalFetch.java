package org.apache.spark.shuffle.flight.local;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.LocateBlocksRequest;
import org.apache.spark.shuffle.flight.proto.LocatedBlocks;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One request of Spark's fetcher, answered from the worker's files: the worker says where the blocks lie, unless that
 * is known, and they are read and verified. Map outputs may share a file, out of which their blocks are read together.
 * What cannot be had this way goes over the wire.
 */
final class LocalFetch {
  private static final Logger LOG = LoggerFactory.getLogger(LocalFetch.class);

  /** Indexes up to this size are asked for whole, so that other tasks of this process need not ask: 26,000 blocks. */
  private static final int WHOLE_BYTES = 1 << 20;

  /** Of all indexes of one answer: half of what is kept. */
  private static final int ANSWER_BYTES = LocalFileAccess.KNOWN_FILES_BYTES / 2;

  /** Of blocks in one file that are read into one buffer. */
  private static final long MOST_TOGETHER = 64 << 20;

  private final LocalReader reader;
  private final WorkerAddress worker;
  private final BlockFetchingListener listener;
  private final Consumer<List<WantedBlock>> wire;
  private final Set<WantedBlock> left;

  /** @param wire takes the blocks that were not answered here, last */
  LocalFetch(
      LocalReader reader, WorkerAddress worker, List<WantedBlock> wanted, BlockFetchingListener listener,
      Consumer<List<WantedBlock>> wire) {
    this.reader = reader;
    this.worker = worker;
    this.listener = listener;
    this.wire = wire;
    this.left = new LinkedHashSet<>(wanted);
  }

  /**
   * Blocks; each wanted block is answered once, here or by the wire. When this throws, some have been answered, and the
   * wire gets none: Spark takes a block that comes again for another one.
   */
  void run() {
    try {
      left.retainAll(Set.copyOf(reader.fromKnownFiles(worker.id(), List.copyOf(left), Long.MAX_VALUE, listener)));
      ByteString nonce = left.isEmpty() ? null : reader.localFiles().nonce(worker, reader.shuffle());
      if (nonce != null) {
        answer(locate(nonce));
      }
    } catch (IOException | InvalidPathException e) {
      reader.localFiles().failed(worker, e instanceof IOException failure ? failure : new IOException(e));
    }
    if (!left.isEmpty()) {
      wire.accept(List.copyOf(left));
    }
  }

  private List<LocatedBlocks> locate(ByteString nonce) throws IOException {
    GetTicket.Builder ticket = GetTicket.newBuilder().setShuffle(reader.shuffle());
    left.forEach(block -> ticket.addRanges(block.toMessage()));
    boolean once = left.stream().map(WantedBlock::map).distinct().count() == left.size();
    LocateBlocksRequest request =
        LocateBlocksRequest.newBuilder()
            .setNonce(nonce)
            .setTicket(ticket)
            .setWholeBelow(once ? Math.min(WHOLE_BYTES, ANSWER_BYTES / left.size()) : 0)
            .setTogether(true)
            .build();
    List<LocatedBlocks> located = new ArrayList<>(left.size());
    for (byte[] result : reader.localFiles().act(worker, "locate", request, reader.localFiles().timeout())) {
      LocatedBlocks some = LocatedBlocks.parseFrom(result);
      if (some.getRangesCount() == 0) {
        located.add(some);
      } else {
        located.addAll(some.getRangesList());
      }
    }
    return located;
  }

  private void answer(List<LocatedBlocks> results) throws IOException {
    List<WantedBlock> wanted = List.copyOf(left);
    if (results.size() != wanted.size()) {
      throw new IOException(worker + " located " + results.size() + " of " + wanted.size() + " ranges");
    }
    Map<String, OfFile> files = new LinkedHashMap<>();
    for (int i = 0; i < wanted.size(); i++) {
      WantedBlock block = wanted.get(i);
      LocatedBlocks located = results.get(i);
      try {
        files.computeIfAbsent(located.getPath(), path -> new OfFile()).add(block, rows(block, located));
      } catch (IOException e) {
        LOG.info("{} goes over the wire: {}", block.blockId(), e.toString());
      }
    }
    for (Map.Entry<String, OfFile> file : files.entrySet()) {
      for (OfFile part : file.getValue().parts()) {
        if (!reader.closed().getAsBoolean()) {
          read(file.getKey(), part);
        }
      }
    }
  }

  private void read(String path, OfFile file) {
    try {
      FileBlocks.give(file.blocks, Path.of(path), file.rows(), file.rowEnds(), Long.MAX_VALUE, listener);
    } catch (IOException e) {
      LOG.info("{} and those behind it go over the wire: {}", file.blocks.get(0).blockId(), e.toString());
      return;
    }
    left.removeAll(file.blocks);
  }

  /** What is wanted of one file. */
  private static final class OfFile {
    private final List<WantedBlock> blocks = new ArrayList<>();
    private final List<ByteBuffer> rows = new ArrayList<>();

    void add(WantedBlock block, ByteBuffer its) {
      blocks.add(block);
      rows.add(its);
    }

    /** This, or, when it has more than fits into a buffer, its blocks one by one. */
    List<OfFile> parts() {
      long bytes = 0;
      for (ByteBuffer its : rows) {
        for (int row = 0; row + FileIndex.ROW_BYTES <= its.limit(); row += FileIndex.ROW_BYTES) {
          bytes += its.getLong(row + 8);
        }
      }
      if (blocks.size() <= 1 || bytes <= MOST_TOGETHER) {
        return blocks.isEmpty() ? List.of() : List.of(this);
      }
      List<OfFile> parts = new ArrayList<>();
      for (int i = 0; i < blocks.size(); i++) {
        OfFile part = new OfFile();
        part.add(blocks.get(i), rows.get(i));
        parts.add(part);
      }
      return parts;
    }

    ByteBuffer rows() {
      if (rows.size() == 1) {
        return rows.get(0);
      }
      ByteBuffer all =
          ByteBuffer.allocate(rows.stream().mapToInt(ByteBuffer::limit).sum()).order(ByteOrder.LITTLE_ENDIAN);
      rows.forEach(its -> all.put(its.duplicate()));
      return all.flip();
    }

    int[] rowEnds() {
      int[] ends = new int[rows.size()];
      int end = 0;
      for (int i = 0; i < ends.length; i++) {
        end += rows.get(i).limit();
        ends[i] = end;
      }
      return ends;
    }
  }

  /** The index rows of {@code block}; those of its whole output are kept. */
  private ByteBuffer rows(WantedBlock block, LocatedBlocks located) throws IOException {
    if (located.hasError()) {
      throw FlightException.reported(worker.toString(), located.getError());
    }
    if (located.getOutput().getMap() != block.map()) {
      throw new IOException(worker + " located something else than " + block.blockId());
    }
    ByteBuffer rows = located.getIndex().asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    if (!rows.hasRemaining()) {
      throw new IOException(worker + " located nothing of " + block.blockId());
    }
    if (!located.getWhole()) {
      return rows;
    }
    FileIndex index = FileIndex.of(rows);
    reader.localFiles().files()
        .add(
            reader.shuffle(), block.map(),
            new FileIndexCache.Known(worker.id(), Path.of(located.getPath()), index));
    return index.between(block.firstPartition(), block.endPartition());
  }
}
