package org.apache.spark.shuffle.flight.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class BlockBatchTest {
  @Test
  void blockWithoutBytesIsNone() {
    BlockTotals totals = new BlockTotals();
    BlockBatch batch = new BlockBatch(16);
    batch.endBlock(1, totals);
    assertEquals(0, batch.blocks());
    assertEquals(0, totals.toMessage().getBlocks());
  }

  @Test
  void tableGrowsWithTheBlocks() {
    BlockTotals totals = new BlockTotals();
    BlockBatch batch = new BlockBatch(1000);
    for (int i = 0; i < 1000; i++) {
      batch.append(new byte[] {(byte) i}, 0, 1);
      batch.endBlock(i, totals);
    }
    assertEquals(1000, batch.blocks());
    assertEquals(999, batch.partition(999));
    assertEquals(1000, batch.end(999));
    assertEquals(0, batch.room());
  }

  @Test
  void clearedBatchStartsAgain() {
    BlockTotals totals = new BlockTotals();
    BlockBatch batch = new BlockBatch(8);
    batch.append(new byte[8], 0, 8);
    batch.endBlock(1, totals);
    batch.clear();
    batch.append(new byte[3], 0, 3);
    assertEquals(3, batch.openLength());
    batch.endBlock(2, totals);
    assertEquals(1, batch.blocks());
    assertEquals(0, batch.start(0));
    assertEquals(11, totals.bytes());
  }
}
