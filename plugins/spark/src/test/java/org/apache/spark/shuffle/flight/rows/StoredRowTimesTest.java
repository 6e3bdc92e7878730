package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class StoredRowTimesTest {
  private static final int TRAILER = 32;

  @Test
  void rowsOfStoredMapOutputsAreFoundAgainByQueryAndInTotal(@TempDir Path folder) throws IOException {
    RandomRows rows = new RandomRows(2);
    for (int row = 0; row < 1_000; row++) {
      rows.add(row, 7);
    }
    byte[] block = FuzzedBlock.of(2, "lz4", rows.toBytes()).bytes();
    Path shuffle = Files.createDirectories(folder.resolve("q01").resolve("0"));
    byte[] stored = ByteBuffer.allocate(2 * block.length + TRAILER).order(ByteOrder.LITTLE_ENDIAN)
        .put(block).put(block).putLong(2 * block.length).array();
    Files.write(shuffle.resolve("0.out"), stored);
    Files.write(shuffle.resolve("1.out"), new byte[TRAILER]); // an output without rows
    List<String> lines = StoredRowTimes.table(folder, 1, 1);
    assertEquals(4, lines.size());
    assertTrue(lines.get(2).startsWith("| q01, 28 B | 0 | "), lines.get(2));
    assertTrue(lines.get(3).startsWith("| all, 28 B | 0 | "), lines.get(3));
  }
}
