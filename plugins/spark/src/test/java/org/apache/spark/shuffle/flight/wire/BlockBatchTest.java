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

  @Test
  void payloadGrowsToTheCapacityAndNotBeyond() {
    BlockTotals totals = new BlockTotals();
    BlockBatch batch = new BlockBatch(100_000);
    byte[] piece = new byte[30_001];
    for (int i = 0; i < 3; i++) {
      java.util.Arrays.fill(piece, (byte) i);
      batch.append(piece, 0, piece.length);
      batch.endBlock(2 - i, totals);
    }
    assertEquals(100_000 - 3 * piece.length, batch.room());
    batch.append(piece, 0, batch.room());
    assertEquals(0, batch.room());
    assertEquals(100_000, batch.payload().length);
    for (int i = 0; i < 3; i++) {
      assertEquals(i, batch.payload()[i * piece.length]);
      assertEquals(i, batch.payload()[(i + 1) * piece.length - 1]);
    }
  }

  @Test
  void indexIsByPartitionWithOffsetsInTheOrderOfAppending() {
    BlockTotals totals = new BlockTotals();
    BlockBatch batch = new BlockBatch(100);
    for (int partition : new int[] {4, 1, 4}) {
      batch.append(new byte[partition], 0, partition);
      batch.endBlock(partition, totals);
    }
    java.nio.ByteBuffer index = batch.index();
    assertEquals(3 * BlockBatch.INDEX_ROW_BYTES, index.limit());
    int[][] expected = {{1, 1, 4}, {4, 4, 0}, {4, 4, 5}}; // partition, length, offset
    for (int row = 0; row < 3; row++) {
      int at = row * BlockBatch.INDEX_ROW_BYTES;
      assertEquals(expected[row][0], index.getInt(at));
      assertEquals(expected[row][1], index.getLong(at + 8));
      assertEquals(expected[row][2], index.getLong(at + 32));
    }
  }
}
