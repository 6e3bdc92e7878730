package org.apache.spark.shuffle.flight.rows;

import java.nio.ByteBuffer;

/**
 * What goes before a buffer of rows: {@code mark and codec, length, raw length} (int32 each), and, when {@link #PACKED} is
 * part of the codec, the length of the packed rows before they were compressed.
 */
public final class RowHeader {
  public static final int BYTES = 12;
  public static final int PACKED_BYTES = 16;

  /** Added to the codec's id when the rows were packed by column. */
  static final int PACKED = 0x10;

  /** "ROW" and a byte for the codec: streams of other writers do not begin so, nor does a row's length. */
  private static final int MARK = 'R' << 24 | 'O' << 16 | 'W' << 8;

  private static final int CODEC_BITS = 0xff;

  private RowHeader() {}

  /** Whether a buffer begins with {@code first}. */
  public static boolean isMark(int first) {
    return (first & ~CODEC_BITS) == MARK;
  }

  /** The codec's id, and whether the rows are packed, of a buffer that begins with {@code first}. */
  static int codec(int first) {
    return first & CODEC_BITS;
  }

  /** Writes what goes before {@code length} bytes that are {@code rawLength} bytes of rows. */
  static void put(ByteBuffer target, int codec, int length, int rawLength) {
    target.putInt(0, MARK | codec).putInt(4, length).putInt(8, rawLength);
  }

  /** The same for {@code packedLength} bytes of packed rows, whatever {@code codec} has made of them. */
  public static void putPacked(ByteBuffer target, int codec, int length, int rawLength, int packedLength) {
    put(target, codec | PACKED, length, rawLength);
    target.putInt(BYTES, packedLength);
  }
}
