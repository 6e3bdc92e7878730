package org.apache.spark.shuffle.flight.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Comparator;
import java.util.zip.CRC32C;

/**
 * The blocks of one push message: a growing table of rows and a growing payload array, used again for the next batch.
 *
 * <p>Payload bytes are copied in once, by {@link #append}; a block is closed by {@link #endBlock}. Blocks are
 * sent as they are ({@code raw_length == length}): Spark's own writers have compressed them already. Those do not say how
 * many records a block has (0).
 */
public final class BlockBatch {
  /** Of a row of {@link #index}. */
  public static final int INDEX_ROW_BYTES = BlockTable.ROW_BYTES + Long.BYTES;

  private static final int FIRST_BYTES = 16 << 10;

  private final int capacity;
  private byte[] payload;
  private final CRC32C crc = new CRC32C();
  private int[] partitions = new int[64];
  private int[] checksums = new int[64];
  private int[] ends = new int[64];
  private int[] records = new int[64];
  private int blocks;
  private int used;

  /** @param capacity payload bytes of one batch */
  public BlockBatch(int capacity) {
    this.capacity = capacity;
    payload = new byte[Math.min(capacity, FIRST_BYTES)]; // most outputs are small, and a large array costs to be cleared
  }

  /** Payload bytes that still fit. */
  public int room() {
    return capacity - used;
  }

  /** Payload bytes in this batch, those of the open block included. */
  public int size() {
    return used;
  }

  public int blocks() {
    return blocks;
  }

  /** Length of the block that is being filled. */
  public int openLength() {
    return used - start(blocks);
  }

  /** Copies {@code length <= room()} bytes into the open block. */
  public void append(byte[] source, int offset, int length) {
    System.arraycopy(source, offset, space(length), used, length);
    used += length;
  }

  /**
   * For who makes payload bytes where they are to lie: the array in which {@code most <= room()} bytes may be written from
   * {@link #size} on, before {@link #append(int)}.
   */
  public byte[] space(int most) {
    if (payload.length - used < most) {
      payload = Arrays.copyOf(payload, (int) Math.min(capacity, Math.max(4L * payload.length, (long) used + most)));
    }
    return payload;
  }

  /** Takes {@code length} bytes, which were written to {@link #space}, into the open block. */
  public void append(int length) {
    used += length;
  }

  /** Closes the open block, if it has any bytes, as one of {@code partition}, and adds its row to {@code totals}. */
  public void endBlock(int partition, BlockTotals totals) {
    endBlock(partition, 0, totals);
  }

  /** The same with the number of records in the block. */
  public void endBlock(int partition, int recordCount, BlockTotals... totals) {
    int length = openLength();
    if (length == 0) {
      return;
    }
    if (blocks == ends.length) {
      partitions = Arrays.copyOf(partitions, 2 * blocks);
      checksums = Arrays.copyOf(checksums, 2 * blocks);
      ends = Arrays.copyOf(ends, 2 * blocks);
      records = Arrays.copyOf(records, 2 * blocks);
    }
    crc.reset();
    crc.update(payload, used - length, length);
    partitions[blocks] = partition;
    checksums[blocks] = (int) crc.getValue();
    ends[blocks] = used;
    records[blocks] = recordCount;
    for (BlockTotals each : totals) {
      each.add(partition, checksums[blocks], length, length, recordCount);
    }
    blocks++;
  }

  /** The payloads of all blocks, one behind the other. */
  public ByteBuffer payloadBytes() {
    return ByteBuffer.wrap(payload, 0, used);
  }

  /** Adds the rows of all closed blocks to {@code table}. */
  public void addRowsTo(BlockTable table) {
    for (int block = 0; block < blocks; block++) {
      int length = end(block) - start(block);
      table.add(partition(block), checksum(block), length, length, records(block));
    }
  }

  /** The rows of all closed blocks by partition, each with the offset of its payload (docs/protocol.md, Hand-over). */
  public ByteBuffer index() {
    Integer[] order = new Integer[blocks];
    Arrays.setAll(order, block -> block);
    Arrays.sort(order, Comparator.comparingInt(this::partition)); // blocks of one partition stay in their order
    ByteBuffer rows = ByteBuffer.allocate(INDEX_ROW_BYTES * blocks).order(ByteOrder.LITTLE_ENDIAN);
    for (int block : order) {
      int length = end(block) - start(block);
      BlockTable.put(rows, partition(block), checksum(block), length, length, records(block));
      rows.putLong(start(block));
    }
    return rows.flip();
  }

  /** Empties the batch. Its payload array is written over from now on. */
  public void clear() {
    blocks = 0;
    used = 0;
  }

  int partition(int block) {
    return partitions[block];
  }

  int checksum(int block) {
    return checksums[block];
  }

  int records(int block) {
    return records[block];
  }

  int start(int block) {
    return block == 0 ? 0 : ends[block - 1];
  }

  int end(int block) {
    return ends[block];
  }

  byte[] payload() {
    return payload;
  }
}
