package org.apache.spark.shuffle.flight.wire;

import io.netty.buffer.ByteBuf;
import java.util.zip.CRC32C;

/** Blocks that a worker served, in its order; a row is a block. The payloads lie in {@link #body}, one behind the other. */
public interface PulledBlocks {
  int rows();

  long map(int row);

  int partition(int row);

  int checksum(int row);

  long rawLength(int row);

  long records(int row);

  /** Where the payload of {@code row} starts in {@link #body}. */
  int offset(int row);

  /** Stored bytes of {@code row}. */
  int length(int row);

  /** What holds all payloads. */
  ByteBuf body();

  /** Whether the payload of {@code row} has the checksum that its writer computed. */
  default boolean intact(int row) {
    CRC32C crc = new CRC32C();
    crc.update(body().nioBuffer(offset(row), length(row)));
    return (int) crc.getValue() == checksum(row);
  }
}
