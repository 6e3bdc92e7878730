package org.apache.spark.shuffle.flight.rows;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** How rows lie in a buffer, as {@code UnsafeRowSerializer} writes them: a big-endian length and the row's bytes. */
public final class RowFormat {
  static final int LENGTH_BYTES = 4;

  private RowFormat() {}

  /** Bytes that a row takes. */
  public static int length(UnsafeRow row) {
    return Math.addExact(row.getSizeInBytes(), LENGTH_BYTES);
  }

  /** Writes a row where {@code target} has room for it. */
  public static void put(UnsafeRow row, byte[] target, int at) {
    int size = row.getSizeInBytes();
    target[at] = (byte) (size >>> 24);
    target[at + 1] = (byte) (size >>> 16);
    target[at + 2] = (byte) (size >>> 8);
    target[at + 3] = (byte) size;
    Object base = row.getBaseObject();
    long offset = row.getBaseOffset();
    if (base instanceof byte[] bytes) { // as projections make them; copied with less around it than by Platform
      System.arraycopy(bytes, (int) (offset - Platform.BYTE_ARRAY_OFFSET), target, at + LENGTH_BYTES, size);
    } else {
      Platform.copyMemory(base, offset, target, Platform.BYTE_ARRAY_OFFSET + at + LENGTH_BYTES, size);
    }
  }

  /** The number that a row, or a {@link RowHeader}, begins with. */
  public static int first(byte[] rows, int at) {
    return (rows[at] & 0xff) << 24 | (rows[at + 1] & 0xff) << 16 | (rows[at + 2] & 0xff) << 8 | rows[at + 3] & 0xff;
  }
}
