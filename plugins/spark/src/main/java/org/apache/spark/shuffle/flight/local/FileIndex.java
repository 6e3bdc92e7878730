package org.apache.spark.shuffle.flight.local;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.spark.shuffle.flight.wire.BlockBatch;

/**
 * Where the blocks of a whole map output lie in its file, by partition: 40 bytes each, the block's table row and the offset
 * of its payload (docs/protocol.md, Hand-over).
 */
public final class FileIndex {
  static final int ROW_BYTES = BlockBatch.INDEX_ROW_BYTES;

  private final ByteBuffer rows;

  private FileIndex(ByteBuffer rows) {
    this.rows = rows;
  }

  /** @throws IOException {@code encoded} is not in the order of partitions, so that a range of it could be incomplete */
  static FileIndex of(ByteBuffer encoded) throws IOException {
    ByteBuffer rows = encoded.slice().order(ByteOrder.LITTLE_ENDIAN);
    int before = 0;
    for (int at = 0; at + ROW_BYTES <= rows.limit(); at += ROW_BYTES) {
      int partition = rows.getInt(at);
      if (partition < before) {
        throw new IOException("an index with partition " + partition + " behind " + before);
      }
      before = partition;
    }
    if (rows.limit() % ROW_BYTES != 0) {
      throw new IOException("an index of " + rows.limit() + " bytes");
    }
    return new FileIndex(rows);
  }

  /** Of an output that has no other blocks, and whose file begins with them in the order of {@code all}. */
  public static FileIndex of(BlockBatch all) {
    return new FileIndex(all.index());
  }

  int bytes() {
    return rows.limit();
  }

  /** The rows of partitions {@code first} to before {@code end}. */
  public ByteBuffer between(int first, int end) {
    int from = ROW_BYTES * rowsBefore(first);
    int to = ROW_BYTES * rowsBefore(end);
    return rows.slice(from, to - from).order(ByteOrder.LITTLE_ENDIAN);
  }

  private int rowsBefore(int partition) {
    int low = 0;
    int high = rows.limit() / ROW_BYTES;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (rows.getInt(ROW_BYTES * middle) < partition) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
}
