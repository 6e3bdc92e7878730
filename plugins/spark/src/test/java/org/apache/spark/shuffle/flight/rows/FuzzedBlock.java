package org.apache.spark.shuffle.flight.rows;

import com.sun.management.ThreadMXBean;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Tuple2;
import scala.collection.JavaConverters;

/** Bytes that may be a block of rows of so many fields. */
record FuzzedBlock(int fields, byte[] bytes) {
  private static final int GUARD = 64;
  private static final byte UNTOUCHED = 0x55;

  /** Of one input, beyond what its codec may expand to: arrays of 1 MiB that are kept, the places of rows. */
  private static final long MEMORY = 16L << 20;

  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  /** The block that the writer makes of rows. */
  static FuzzedBlock of(int fields, String codec, byte[] rows) {
    ColumnPacker packer = new ColumnPacker(ColumnPacker.words(fields));
    try (RowBlockWriter writer = new RowBlockWriter(codec(codec), codec(codec), packer)) {
      writer.start(rows, rows.length);
      byte[] target = new byte[writer.most()];
      return new FuzzedBlock(fields, Arrays.copyOf(target, writer.make(target, 0)));
    }
  }

  static RowCodec codec(String name) {
    SparkConf conf = new SparkConf(false);
    return RowCodec.of(
        name.equals("none") ? conf.set("spark.shuffle.compress", "false") : conf.set("spark.io.compression.codec", name));
  }

  static FuzzedBlock ofBytes(byte[] kept) {
    ByteBuffer from = ByteBuffer.wrap(kept);
    int fields = from.getInt();
    byte[] bytes = new byte[from.remaining()];
    from.get(bytes);
    return new FuzzedBlock(fields, bytes);
  }

  byte[] toBytes() {
    return ByteBuffer.allocate(Integer.BYTES + bytes.length).putInt(fields).put(bytes).array();
  }

  /** All rows, with their lengths before them. */
  byte[] rows() throws IOException {
    RowBlockReader reader = new RowBlockReader();
    ByteArrayInputStream stream = new ByteArrayInputStream(bytes);
    ByteArrayOutputStream rows = new ByteArrayOutputStream();
    while (reader.next(stream)) {
      rows.write(reader.rows(), 0, reader.length());
    }
    return rows.toByteArray();
  }

  /**
   * Reads it as a task does; whether an error says that it is malformed.
   *
   * @throws AssertionError it took more memory than it may, or wrote where it may not. Other errors come as they are.
   */
  boolean isRefused() {
    checkGuards();
    long before = THREADS.getCurrentThreadAllocatedBytes();
    boolean refused = !isRead();
    long taken = THREADS.getCurrentThreadAllocatedBytes() - before;
    if (taken > MEMORY + mostRaw()) {
      throw new AssertionError(bytes.length + " bytes took " + taken + " bytes of memory");
    }
    return refused;
  }

  /** The most that a codec may make of so many bytes. */
  private long mostRaw() {
    return Math.min(2L * RowCodec.LARGEST, 2L * (32 << 10) * bytes.length);
  }

  private boolean isRead() {
    Tuple2<BlockId, InputStream> stream = new Tuple2<>(new ShuffleBlockId(0, 0, 0), new ByteArrayInputStream(bytes));
    RowReader reader =
        new RowReader(JavaConverters.asScalaIterator(List.of(stream).iterator()), fields, (block, why) -> {});
    try {
      long sizes = 0;
      while (reader.hasNext()) {
        sizes += ((UnsafeRow) reader.next()._2()).getSizeInBytes();
      }
      return sizes >= 0;
    } catch (UncheckedIOException malformed) {
      return false;
    }
  }

  /** That what expands the first buffer writes nothing behind the bytes it is to make. */
  private void checkGuards() {
    if (bytes.length < RowHeader.PACKED_BYTES) {
      return;
    }
    ByteBuffer header = ByteBuffer.wrap(bytes);
    int kind = RowHeader.codec(header.getInt(0));
    boolean isPacked = (kind & RowHeader.PACKED) != 0;
    int raw = header.getInt(8);
    int made = isPacked ? header.getInt(RowHeader.BYTES) : raw;
    if (made <= 0 || made > ColumnPacker.LONGEST || raw <= 0 || raw > ColumnPacker.LONGEST) {
      return;
    }
    byte[] data = Arrays.copyOfRange(bytes, isPacked ? RowHeader.PACKED_BYTES : RowHeader.BYTES, bytes.length);
    byte[] expanded = guarded(made);
    try {
      RowCodec codec = RowCodec.of(kind & ~RowHeader.PACKED);
      if (codec.id() != RowCodec.STORED) {
        codec.unpack(data, data.length, expanded, made);
      } else if (data.length >= made) {
        System.arraycopy(data, 0, expanded, 0, made);
      }
    } catch (IOException malformed) {
      // it may be
    }
    checkGuard(expanded, made);
    if (isPacked) {
      checkUnpacking(expanded, made, raw);
    }
  }

  private static void checkUnpacking(byte[] packed, int length, int raw) {
    byte[] rows = guarded(raw);
    try {
      new ColumnUnpacker().unpack(packed, length, rows, raw);
    } catch (IOException malformed) {
      // it may be
    }
    checkGuard(rows, raw);
  }

  private static byte[] guarded(int length) {
    byte[] array = new byte[length + GUARD];
    Arrays.fill(array, length, array.length, UNTOUCHED);
    return array;
  }

  private static void checkGuard(byte[] array, int length) {
    for (int i = length; i < array.length; i++) {
      if (array[i] != UNTOUCHED) {
        throw new AssertionError("byte " + i + " was written, of " + length);
      }
    }
  }
}
