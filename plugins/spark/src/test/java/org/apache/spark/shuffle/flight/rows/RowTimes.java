package org.apache.spark.shuffle.flight.rows;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/** Bytes, and nanoseconds of the processor, of making blocks of rows and of reading them: plain, and packed by column. */
final class RowTimes {
  static final String HEAD = "| rows | MiB | bytes | packed | ns to write a row | packed | ratio | to read | packed | ratio |\n"
      + "|---|---|---|---|---|---|---|---|---|---|";
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private long rows;
  private long raw;
  private final long[] bytes = new long[2];
  private final long[] writes = new long[2];
  private final long[] reads = new long[2];

  /** Of buffers of rows with {@code words} each, those of a map output together: medians of {@code rounds}, in turns. */
  static RowTimes of(int words, List<List<byte[]>> outputs, int rounds) throws IOException {
    RowTimes made = new RowTimes();
    for (List<byte[]> output : outputs) {
      for (byte[] buffer : output) {
        made.raw += buffer.length;
        for (int at = 0; at < buffer.length; at += RowFormat.LENGTH_BYTES + RowFormat.first(buffer, at)) {
          made.rows++;
        }
      }
    }
    Way[] ways = {new Way(outputs, null), new Way(outputs, new ColumnPacker(words))};
    for (int round = 0; round < rounds; round++) {
      for (Way way : ways) {
        way.run();
      }
    }
    for (int way = 0; way < ways.length; way++) {
      made.bytes[way] = ways[way].bytes;
      made.writes[way] = median(ways[way].writes);
      made.reads[way] = median(ways[way].reads);
    }
    return made;
  }

  private static long median(List<Long> times) {
    return times.stream().sorted().skip(times.size() / 2).findFirst().orElseThrow();
  }

  boolean isEmpty() {
    return rows == 0;
  }

  void add(RowTimes more) {
    rows += more.rows;
    raw += more.raw;
    for (int way = 0; way < bytes.length; way++) {
      bytes[way] += more.bytes[way];
      writes[way] += more.writes[way];
      reads[way] += more.reads[way];
    }
  }

  /** A line below {@link #HEAD}. */
  String line(String name) {
    double one = Math.max(1, rows);
    return String.format(Locale.ROOT, "| %s, %.0f B | %d | %.2f | %.2f | %.1f | %.1f | %.2f | %.1f | %.1f | %.2f |", name,
        raw / one, raw >> 20, bytes[0] / (double) raw, bytes[1] / (double) raw, writes[0] / one, writes[1] / one,
        writes[1] / (double) writes[0], reads[0] / one, reads[1] / one, reads[1] / (double) reads[0]);
  }

  /** Rows packed or not, and what that took. */
  private static final class Way {
    private final List<List<byte[]>> outputs;
    private final ColumnPacker packer;
    private final List<Long> writes = new ArrayList<>();
    private final List<Long> reads = new ArrayList<>();
    private final RowBlockReader reader = new RowBlockReader();
    private long bytes;

    Way(List<List<byte[]>> outputs, ColumnPacker packer) {
      this.outputs = outputs;
      this.packer = packer;
    }

    void run() throws IOException {
      bytes = 0;
      long write = 0;
      long read = 0;
      for (List<byte[]> output : outputs) {
        List<byte[]> blocks = new ArrayList<>();
        long begin = THREADS.getCurrentThreadCpuTime();
        try (RowBlockWriter writer = new RowBlockWriter(FuzzedBlock.codec("lz4"), FuzzedBlock.codec("lz4"), packer)) {
          for (byte[] rows : output) {
            writer.start(rows, rows.length);
            byte[] target = new byte[writer.most()];
            blocks.add(Arrays.copyOf(target, writer.make(target, 0)));
            writer.lengthInSpark(true);
          }
        }
        long written = THREADS.getCurrentThreadCpuTime();
        for (byte[] block : blocks) {
          bytes += block.length;
          reader.next(new ByteArrayInputStream(block));
        }
        write += written - begin;
        read += THREADS.getCurrentThreadCpuTime() - written;
      }
      writes.add(write);
      reads.add(read);
    }
  }
}
