package org.apache.spark.shuffle.flight.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;
import org.apache.spark.shuffle.flight.proto.Totals;

/**
 * Running totals of a sequence of blocks, with the digest over their table rows (docs/protocol.md, Blocks).
 *
 * <p>Both ends keep one per stream and compare them at its end, so a block that got lost, repeated or changed its place
 * is noticed even though each single block looks sound.
 */
public final class BlockTotals {
  private final CRC32C digest = new CRC32C();
  private final ByteBuffer row = ByteBuffer.allocate(BlockTable.ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);
  private long blocks;
  private long bytes;
  private long rawBytes;
  private long records;

  /** Adds one block's row. */
  public void add(int partition, int crc32c, long length, long rawLength, long recordCount) {
    BlockTable.put(row.clear(), partition, crc32c, length, rawLength, recordCount);
    digest.update(row.array(), 0, BlockTable.ROW_BYTES);
    blocks++;
    bytes += length;
    rawBytes += rawLength;
    records += recordCount;
  }

  public long bytes() {
    return bytes;
  }

  /** The totals so far, as they are stated on the wire. */
  public Totals toMessage() {
    return Totals.newBuilder()
        .setBlocks(blocks)
        .setBytes(bytes)
        .setRawBytes(rawBytes)
        .setRecords(records)
        .setDigest((int) digest.getValue())
        .build();
  }
}
