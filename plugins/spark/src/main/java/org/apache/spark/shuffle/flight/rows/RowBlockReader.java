package org.apache.spark.shuffle.flight.rows;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;

/**
 * Takes buffers of rows off a stream, one by one, each expanded whole: {@link RowHeader} and its bytes.
 *
 * <p>The last two buffers' rows stay as they are. With them that is at most four arrays of {@link RowCodec#KEPT} and the
 * places of as many bytes of rows; those of a larger row are not kept.
 */
public final class RowBlockReader {
  private static final byte[] NOTHING = new byte[0];

  private final ByteBuffer header = ByteBuffer.allocate(RowHeader.PACKED_BYTES);
  private ColumnUnpacker unpacker;
  private RowCodec codec;
  private byte[] compressed = NOTHING;
  private byte[] packed = NOTHING;
  private byte[] rows = NOTHING;
  private byte[] spare = NOTHING;
  private int length;

  /** The next buffer's rows are in {@link #rows}; false when the stream is at its end. */
  public boolean next(InputStream stream) throws IOException {
    int read = stream.readNBytes(header.array(), 0, RowHeader.BYTES);
    if (read == 0) {
      return false;
    }
    if (read < RowHeader.BYTES || !RowHeader.isMark(header.getInt(0))) {
      throw RowCodec.malformed("it does not begin with a header");
    }
    int kind = RowHeader.codec(header.getInt(0));
    boolean columns = (kind & RowHeader.PACKED) != 0;
    int id = kind & ~RowHeader.PACKED;
    if (codec == null || codec.id() != id) {
      codec = RowCodec.of(id);
    }
    int stored = header.getInt(4);
    int raw = header.getInt(8);
    byte[] made = columns ? unpacked(stream, stored, raw) : expanded(stream, stored, raw, spare);
    spare = kept(rows);
    rows = made;
    length = raw;
    return true;
  }

  private byte[] unpacked(InputStream stream, int stored, int raw) throws IOException {
    if (stream.readNBytes(header.array(), RowHeader.BYTES, Integer.BYTES) < Integer.BYTES) {
      throw new EOFException("the header of a buffer of rows is cut off");
    }
    int packedLength = header.getInt(RowHeader.BYTES);
    if (packedLength > raw || raw > ColumnPacker.LONGEST) {
      throw RowCodec.malformed("its header says that " + packedLength + " packed bytes are " + raw + " bytes of rows");
    }
    packed = expanded(stream, stored, packedLength, packed);
    if (unpacker == null) {
      unpacker = new ColumnUnpacker();
    }
    byte[] made = roomFor(raw, spare);
    unpacker.unpack(packed, packedLength, made, raw);
    return made;
  }

  /** The next {@code stored} bytes as {@code raw} bytes, in {@code target} or in a new array, with the slack for unpacking. */
  private byte[] expanded(InputStream stream, int stored, int raw, byte[] target) throws IOException {
    boolean asTheyAre = codec.id() == RowCodec.STORED;
    if (stored <= 0 || stored > raw || raw > codec.expanded(stored) || !asTheyAre && raw > RowCodec.LARGEST) {
      throw RowCodec.malformed("its header says that " + stored + " bytes are " + raw + " bytes of rows");
    }
    if (asTheyAre) {
      return read(stream, target, stored);
    }
    byte[] bytes = read(stream, compressed, stored);
    compressed = kept(bytes);
    byte[] made = roomFor(raw, target);
    codec.unpack(bytes, stored, made, raw);
    return made;
  }

  private static byte[] roomFor(int bytes, byte[] target) {
    return target.length - ColumnUnpacker.SLACK < bytes ? new byte[bytes + ColumnUnpacker.SLACK] : target;
  }

  private static byte[] kept(byte[] bytes) {
    return bytes.length > RowCodec.KEPT + ColumnUnpacker.SLACK ? NOTHING : bytes;
  }

  /** The next {@code count} bytes, in {@code target} or in a new array; a large one is not made before the bytes are there. */
  private static byte[] read(InputStream stream, byte[] target, int count) throws IOException {
    byte[] bytes;
    int read;
    if (target.length < count && count > RowCodec.KEPT) {
      bytes = stream.readNBytes(count);
      read = bytes.length;
    } else {
      bytes = roomFor(count, target);
      read = stream.readNBytes(bytes, 0, count);
    }
    if (read < count) {
      throw new EOFException("a buffer of rows is cut off: " + read + " of " + count + " bytes");
    }
    return bytes;
  }

  /** What {@link #next} found, and, until it is asked twice again, what they were. */
  public byte[] rows() {
    return rows;
  }

  /** Bytes of {@link #rows}. */
  public int length() {
    return length;
  }
}
