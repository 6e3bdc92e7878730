package org.apache.spark.shuffle.flight.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.Test;

class BlockTotalsTest {
  @Test
  void digestIsTheCrcOfTheTableRowsInOrder() {
    ByteBuffer rows = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
    rows.putInt(3).putInt(0x89abcdef).putLong(10).putLong(20).putLong(5);
    rows.putInt(4).putInt(17).putLong(1).putLong(1).putLong(0);
    CRC32C crc = new CRC32C();
    crc.update(rows.array());

    BlockTotals totals = new BlockTotals();
    totals.add(3, 0x89abcdef, 10, 20, 5);
    totals.add(4, 17, 1, 1, 0);

    assertEquals((int) crc.getValue(), totals.toMessage().getDigest());
    assertEquals(2, totals.toMessage().getBlocks());
    assertEquals(11, totals.toMessage().getBytes());
    assertEquals(21, totals.toMessage().getRawBytes());
    assertEquals(5, totals.toMessage().getRecords());
  }

  /** The same vector is in the Python tests: the crc32c of "123456789" is 0xe3069283 (RFC 3720). */
  @Test
  void checksumIsCastagnolis() {
    CRC32C crc = new CRC32C();
    crc.update("123456789".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
    assertEquals(0xe3069283L, crc.getValue());
  }

  @Test
  void orderCounts() {
    BlockTotals one = new BlockTotals();
    one.add(1, 2, 3, 3, 0);
    one.add(2, 2, 3, 3, 0);
    BlockTotals other = new BlockTotals();
    other.add(2, 2, 3, 3, 0);
    other.add(1, 2, 3, 3, 0);
    assertNotEquals(one.toMessage(), other.toMessage());
  }
}
