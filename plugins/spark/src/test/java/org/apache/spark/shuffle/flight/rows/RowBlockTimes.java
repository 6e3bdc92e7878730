package org.apache.spark.shuffle.flight.rows;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;

/**
 * Processor time of one thread that makes blocks of rows and reads them, packed and not, in turns: a program.
 *
 * <pre>scripts/jvm -q test-compile, then:
 * java -cp "plugins/spark/target/test-classes:plugins/spark/target/classes:PYSPARK/jars/*" \
 *   org.apache.spark.shuffle.flight.rows.RowBlockTimes [rounds]</pre>
 */
final class RowBlockTimes {
  private static final int BLOCK = 128 << 10;
  private static final int BLOCKS = 64;
  private static final String[] WORDS = {"furiously", "ironic", "deposits", "sleep", "quickly", "above", "the", "pending",
    "accounts", "carefully", "final", "requests", "haggle", "blithely", "regular", "theodolites", "nag", "express"};

  private RowBlockTimes() {}

  /** Makes rows of one kind. */
  private interface Kind {
    void add(RandomRows rows, long number, Random random);
  }

  /** Rows with texts: their words hold where each begins, and its bytes. */
  private static void add(RandomRows rows, Object... fields) {
    long[] values = new long[fields.length];
    byte[] tail = new byte[0];
    for (int field = 0; field < fields.length; field++) {
      if (fields[field] instanceof String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        values[field] = (8L * (1 + fields.length) + tail.length) << 32 | bytes.length;
        int at = tail.length;
        tail = Arrays.copyOf(tail, at + (bytes.length + 7) / 8 * 8);
        System.arraycopy(bytes, 0, tail, at, bytes.length);
      } else {
        values[field] = ((Number) fields[field]).longValue();
      }
    }
    rows.addWithTail(tail, values);
  }

  private static String words(Random random, int least, int most) {
    StringBuilder text = new StringBuilder();
    int length = least + random.nextInt(most - least);
    while (text.length() < length) {
      text.append(WORDS[random.nextInt(WORDS.length)]).append(' ');
    }
    return text.substring(0, length);
  }

  private static String hex(Random random, int characters) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < characters; i++) {
      text.append(Character.forDigit(random.nextInt(16), 16));
    }
    return text.toString();
  }

  private static void numbers(RandomRows rows, long number, Random random) {
    rows.add(number * 16 / 4, random.nextInt(200_000), random.nextInt(10_000), 100L * (1 + random.nextInt(50)),
        90_000 + random.nextInt(10_000_000), random.nextInt(11), 8_000 + random.nextInt(2_500));
  }

  private static void orders(RandomRows rows, long number, Random random) {
    add(rows, number * 64, random.nextInt(150_000), random.nextBoolean() ? "O" : "F", 90_000 + random.nextInt(50_000_000),
        8_000 + random.nextInt(2_500), (1 + random.nextInt(5)) + "-" + WORDS[random.nextInt(5)].toUpperCase(Locale.ROOT),
        String.format(Locale.ROOT, "Clerk#%09d", random.nextInt(1_000)), 0, words(random, 19, 78));
  }

  private static void hexRows(RandomRows rows, long number, Random random) {
    add(rows, number * 64, random.nextInt(1_000_000), Double.doubleToRawLongBits(random.nextDouble()), hex(random, 64));
  }

  private static void texts(RandomRows rows, long number, Random random) {
    add(rows, words(random, 1, 30), words(random, 1, 30), words(random, 1, 60), words(random, 1, 200));
  }

  private static void shortTexts(RandomRows rows, long number, Random random) {
    add(rows, number, WORDS[random.nextInt(WORDS.length)], random.nextInt(1_000));
  }

  public static void main(String[] arguments) throws IOException {
    int rounds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 40;
    String[] names = {"7 numbers", "orders, 9 fields", "64 hexadecimal characters", "4 texts", "number, short text, number"};
    int[] fields = {7, 9, 4, 4, 3};
    Kind[] kinds = {RowBlockTimes::numbers, RowBlockTimes::orders, RowBlockTimes::hexRows, RowBlockTimes::texts,
      RowBlockTimes::shortTexts};
    System.out.println(RowTimes.HEAD);
    for (int turn = 0; turn < 2; turn++) { // the first one is the warm-up: all kinds have run when any is measured
      for (int kind = 0; kind < kinds.length; kind++) {
        String line = measured(names[kind], fields[kind], kinds[kind], turn == 0 ? rounds / 2 : rounds);
        if (turn > 0) {
          System.out.println(line);
        }
      }
    }
  }

  private static String measured(String name, int fields, Kind kind, int rounds) throws IOException {
    List<byte[]> buffers = new ArrayList<>();
    Random random = new Random(1);
    long rows = 0;
    for (int i = 0; i < BLOCKS; i++) {
      RandomRows made = new RandomRows(fields);
      while (made.size() < BLOCK) {
        kind.add(made, rows++, random);
      }
      buffers.add(made.toBytes());
    }
    return RowTimes.of(ColumnPacker.words(fields), List.of(buffers), rounds).line(name);
  }
}
