package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/**
 * Bad blocks of rows, thousands in a test run, or for as long as one says: {@code scripts/jvm test -Dtest=RowBlockFuzzTest
 * -Dfuzz.minutes=10 [-Dfuzz.seed=N]}. Findings are kept in src/test/resources/row-blocks and read again each time: fix
 * the code, and commit the file.
 */
class RowBlockFuzzTest {
  private static final Path KEPT = Path.of(System.getProperty("basedir", "."), "src", "test", "resources", "row-blocks");
  private static final int INPUTS = 6_000;
  private static final String[] CODECS = {"none", "lz4", "zstd"};

  private static String minutes() {
    return System.getProperty("fuzz.minutes", "");
  }

  private static boolean goesOn(int input, long end) {
    return minutes().isEmpty() ? input < INPUTS : System.nanoTime() - end < 0;
  }

  @Test
  void badBlocksAreTypedErrorsOrOtherRows() throws IOException {
    long seed = minutes().isEmpty() ? 1 : Long.getLong("fuzz.seed", System.nanoTime());
    double wanted = minutes().isEmpty() ? 0 : Double.parseDouble(minutes());
    long end = System.nanoTime() + Duration.ofMillis((long) (wanted * 60_000)).toNanos();
    Random random = new Random(seed);
    BadRowBlocks bad = new BadRowBlocks(random);
    List<FuzzedBlock> good = new ArrayList<>();
    int inputs = 0;
    int refused = 0;
    for (; goesOn(inputs, end); inputs++) {
      if (inputs % 500 == 0) {
        good = someBlocks(random);
      }
      FuzzedBlock input = bad.of(good);
      refused += tried(input, "seed " + seed + ", input " + inputs) ? 1 : 0;
    }
    assertTrue(refused > inputs / 3, refused + " of " + inputs + " are refused");
    if (!minutes().isEmpty()) {
      System.out.println("row blocks, seed " + seed + ": " + inputs + " inputs, " + refused + " refused");
    }
  }

  /** Whether it was refused, as it may be. Anything else that goes wrong is kept, and raised. */
  private static boolean tried(FuzzedBlock input, String which) throws IOException {
    try {
      return input.isRefused();
    } catch (Throwable found) {
      Path file = KEPT.resolve("found-" + Integer.toHexString(Arrays.hashCode(input.toBytes())) + ".bin");
      Files.createDirectories(KEPT);
      Files.write(file, input.toBytes());
      throw new AssertionError(which + " is kept in " + file, found);
    }
  }

  /** Blocks of random schemas and values, each of which gives its rows back. */
  private static List<FuzzedBlock> someBlocks(Random random) throws IOException {
    List<FuzzedBlock> blocks = new ArrayList<>();
    for (int i = 0; i < 12; i++) {
      int fields = random.nextInt(3) == 0 ? random.nextInt(150) : random.nextInt(12);
      byte[] rows = RandomRows.of(fields, random.nextLong(), 1 + random.nextInt(6_000)).toBytes();
      FuzzedBlock block = FuzzedBlock.of(fields, CODECS[i % CODECS.length], rows);
      assertArrayEquals(rows, block.rows(), fields + " fields");
      blocks.add(block);
    }
    return blocks;
  }

  @Test
  void whatWasFoundOnceIsAnsweredAsItShouldBe() throws IOException {
    if (!Files.isDirectory(KEPT)) {
      return;
    }
    try (DirectoryStream<Path> files = Files.newDirectoryStream(KEPT, "*.bin")) {
      for (Path file : files) {
        FuzzedBlock.ofBytes(Files.readAllBytes(file)).isRefused();
      }
    }
  }

  @Test
  void inputIsKeptWhole() throws IOException {
    byte[] rows = RandomRows.of(3, 1, 500).toBytes();
    FuzzedBlock block = FuzzedBlock.of(3, "none", rows);
    FuzzedBlock again = FuzzedBlock.ofBytes(block.toBytes());
    assertArrayEquals(rows, again.rows());
    assertEquals(3, again.fields());
    assertEquals(false, again.isRefused());
  }
}
