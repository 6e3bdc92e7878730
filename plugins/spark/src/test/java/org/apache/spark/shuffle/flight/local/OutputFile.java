package org.apache.spark.shuffle.flight.local;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;

/** The file of a map output, and what is known of it. */
public final class OutputFile {
  private OutputFile() {}

  /** Blocks in the order of writing: a partition and a text, and so on. */
  public static BlockBatch batch(Object... partitionsAndTexts) {
    BlockBatch batch = new BlockBatch(1000);
    for (int i = 0; i < partitionsAndTexts.length; i += 2) {
      byte[] text = ((String) partitionsAndTexts[i + 1]).getBytes(UTF_8);
      batch.append(text, 0, text.length);
      batch.endBlock((Integer) partitionsAndTexts[i], new BlockTotals());
    }
    return batch;
  }

  /** Writes {@code batch} as worker "w" would. */
  public static FileIndexCache.Known write(Path directory, BlockBatch batch) throws IOException {
    byte[] bytes = new byte[batch.payloadBytes().remaining()];
    batch.payloadBytes().get(bytes);
    return new FileIndexCache.Known("w", Files.write(directory.resolve("0.out"), bytes), FileIndex.of(batch));
  }
}
