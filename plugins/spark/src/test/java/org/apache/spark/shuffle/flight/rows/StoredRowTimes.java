package org.apache.spark.shuffle.flight.rows;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * The same as {@link RowBlockTimes} for the rows of real shuffles: a program, which {@code python -m tests.spark.packing}
 * runs. Below its folder lie folders of queries, and in these folders of shuffles with files of map outputs (docs/store.md).
 */
final class StoredRowTimes {
  /** Of a file of a map output: where its payload ends is the first number of its trailer. */
  private static final int TRAILER = 32;

  /** Times as many rounds of the first query. */
  private static final int WARM_UP = 4;

  private StoredRowTimes() {}

  public static void main(String[] arguments) throws IOException {
    table(Path.of(arguments[0]), Integer.parseInt(arguments[1]), Long.parseLong(arguments[2]))
        .forEach(System.out::println);
  }

  /** Of at most so many MiB of each shuffle. */
  static List<String> table(Path folder, int rounds, long mostMib) throws IOException {
    List<String> lines = new ArrayList<>(RowTimes.HEAD.lines().toList());
    RowTimes all = new RowTimes();
    for (Path query : below(folder)) {
      RowTimes total = new RowTimes();
      for (Path shuffle : below(query)) {
        StoredShuffle stored = StoredShuffle.of(shuffle, mostMib << 20);
        if (stored.words > 0) {
          total.add(RowTimes.of(stored.words, stored.outputs, all.isEmpty() ? WARM_UP * rounds : rounds));
        }
      }
      lines.add(total.line(query.getFileName().toString()));
      all.add(total);
    }
    lines.add(all.line("all"));
    return lines;
  }

  private static List<Path> below(Path folder) throws IOException {
    try (Stream<Path> found = Files.list(folder)) {
      return found.sorted().toList();
    }
  }

  /** The rows of a shuffle of packed blocks, unpacked. */
  private static final class StoredShuffle {
    private final List<List<byte[]>> outputs = new ArrayList<>();
    private int words;

    /** Of so many bytes of stored outputs at most. */
    static StoredShuffle of(Path folder, long most) throws IOException {
      StoredShuffle made = new StoredShuffle();
      long size = 0;
      for (Path file : below(folder)) {
        if (size < most) {
          size += Files.size(file);
          made.add(Files.readAllBytes(file));
        }
      }
      return made;
    }

    private void add(byte[] file) throws IOException {
      ByteBuffer trailer = ByteBuffer.wrap(file, file.length - TRAILER, TRAILER).order(ByteOrder.LITTLE_ENDIAN);
      int end = (int) trailer.getLong();
      List<byte[]> buffers = new ArrayList<>();
      ByteArrayInputStream stream = new ByteArrayInputStream(file, 0, end);
      RowBlockReader reader = new RowBlockReader();
      while (end >= RowHeader.BYTES && RowHeader.isMark(ByteBuffer.wrap(file).getInt()) && !ended(stream)) {
        lookAt(file, end - stream.available());
        reader.next(stream);
        byte[] rows = new byte[reader.length()];
        System.arraycopy(reader.rows(), 0, rows, 0, rows.length);
        buffers.add(rows);
      }
      if (!buffers.isEmpty()) {
        outputs.add(buffers);
      }
    }

    private static boolean ended(ByteArrayInputStream stream) {
      return stream.available() == 0;
    }

    /** A packed block begins with how many rows it has, and how many words each. */
    private void lookAt(byte[] file, int at) throws IOException {
      ByteBuffer header = ByteBuffer.wrap(file, at, RowHeader.PACKED_BYTES).slice();
      int kind = RowHeader.codec(header.getInt(0));
      if (words > 0 || (kind & RowHeader.PACKED) == 0) {
        return;
      }
      int stored = header.getInt(4);
      byte[] source = new byte[stored];
      System.arraycopy(file, at + RowHeader.PACKED_BYTES, source, 0, stored);
      byte[] packed = new byte[header.getInt(RowHeader.BYTES)];
      int id = kind & ~RowHeader.PACKED;
      if (id == RowCodec.STORED) {
        packed = source;
      } else {
        RowCodec.of(id).unpack(source, stored, packed, packed.length);
      }
      int next = 0;
      while (packed[next++] < 0) {} // the number of rows
      int shift = 0;
      do {
        words |= (packed[next] & 0x7f) << shift;
        shift += 7;
      } while (packed[next++] < 0);
    }
  }
}
