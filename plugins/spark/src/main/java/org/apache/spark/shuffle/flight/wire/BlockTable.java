package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.ByteString;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Block table rows as bytes (docs/protocol.md, Blocks), one behind the other. */
public final class BlockTable {
  static final int ROW_BYTES = 32;

  private ByteBuffer rows = ByteBuffer.allocate(64 * ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);

  public void add(int partition, int crc32c, long length, long rawLength, long records) {
    if (rows.remaining() < ROW_BYTES) {
      rows = ByteBuffer.allocate(2 * rows.capacity()).order(ByteOrder.LITTLE_ENDIAN).put(rows.flip());
    }
    put(rows, partition, crc32c, length, rawLength, records);
  }

  static void put(ByteBuffer row, int partition, int crc32c, long length, long rawLength, long records) {
    row.putInt(partition).putInt(crc32c).putLong(length).putLong(rawLength).putLong(records);
  }

  public ByteString toByteString() {
    return ByteString.copyFrom(rows.duplicate().flip());
  }
}
