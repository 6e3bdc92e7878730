package org.apache.spark.shuffle.flight;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.BlockId;
import org.apache.spark.unsafe.Platform;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The rows that {@link FlightRowWriter} wrote: each buffer is expanded whole, and its rows are pointed to where they lie.
 *
 * <p>A buffer is {@code mark and codec, length, raw length} (int32 each) and its bytes, as they are or compressed. Spark
 * promises that the row handed out last stays valid while it asks whether there is another, so there are two buffers in
 * turn. With the compressed bytes that is at most three arrays of {@link RowCodec#KEPT}; those of a larger row are not kept.
 */
final class RowReader extends AbstractIterator<Product2<Object, Object>> {
  static final int HEADER_BYTES = 12;

  /** "ROW" and a byte for the codec: streams of other writers do not begin so. */
  private static final int MARK = 'R' << 24 | 'O' << 16 | 'W' << 8;

  private static final int CODEC_BITS = 0xff;
  private static final int LENGTH_BYTES = 4;
  private static final int WORD_BYTES = 8;
  private static final byte[] NOTHING = new byte[0];

  /** Told of a block that is not what its map wrote, or cannot be read to its end. */
  interface Complaints {
    /** May throw what makes Spark run the map again. */
    void malformed(BlockId block, IOException why);
  }

  private final Iterator<Tuple2<BlockId, InputStream>> streams;
  private final Complaints complaints;
  private final int smallestRow;
  private final UnsafeRow row;
  private final Tuple2<Object, Object> entry;
  private final ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES);
  private RowCodec codec;
  private BlockId block;
  private InputStream stream;
  private byte[] packed = NOTHING;
  private byte[] rows = NOTHING;
  private byte[] spare = NOTHING;
  private int at;
  private int end;

  /** @param streams of whole buffers, one behind the other; closed when they are used up */
  RowReader(Iterator<Tuple2<BlockId, InputStream>> streams, int fields, Complaints complaints) {
    this.streams = streams;
    this.complaints = complaints;
    this.smallestRow = UnsafeRow.calculateBitSetWidthInBytes(fields) + WORD_BYTES * fields;
    this.row = new UnsafeRow(fields);
    this.entry = new Tuple2<>(0, row); // the partition is not told, as in UnsafeRowSerializer
  }

  /** Writes what goes before {@code length} bytes that are {@code rawLength} bytes of rows. */
  static void putHeader(ByteBuffer target, int codec, int length, int rawLength) {
    target.putInt(0, MARK | codec).putInt(4, length).putInt(8, rawLength);
  }

  @Override
  public boolean hasNext() {
    while (at == end) {
      if (stream == null) {
        if (!streams.hasNext()) {
          return false;
        }
        Tuple2<BlockId, InputStream> next = streams.next();
        block = next._1();
        stream = next._2();
      }
      try {
        if (!nextBuffer()) {
          stream.close();
          stream = null;
        }
      } catch (IOException e) {
        throw failure(e);
      }
    }
    return true;
  }

  private RuntimeException failure(IOException why) {
    complaints.malformed(block, why);
    return new UncheckedIOException(why);
  }

  private boolean nextBuffer() throws IOException {
    int read = stream.readNBytes(header.array(), 0, HEADER_BYTES);
    if (read == 0) {
      return false;
    }
    int mark = header.getInt(0);
    int length = header.getInt(4);
    int rawLength = header.getInt(8);
    if (read < HEADER_BYTES || (mark & ~CODEC_BITS) != MARK) {
      throw RowCodec.malformed("it does not begin with a header");
    }
    int id = mark & CODEC_BITS;
    if (codec == null || codec.id() != id) {
      codec = RowCodec.of(id);
    }
    boolean stored = id == RowCodec.STORED;
    if (length <= 0
        || length > rawLength
        || rawLength > codec.expanded(length)
        || !stored && rawLength > RowCodec.LARGEST) {
      throw RowCodec.malformed("its header says that " + length + " bytes are " + rawLength + " bytes of rows");
    }
    byte[] next;
    if (stored) {
      next = read(spare, length);
    } else {
      byte[] bytes = read(packed, length);
      packed = kept(bytes);
      next = spare.length < rawLength ? new byte[rawLength] : spare;
      codec.unpack(bytes, length, next, rawLength);
    }
    spare = kept(rows);
    rows = next;
    at = 0;
    end = rawLength;
    return true;
  }

  private static byte[] kept(byte[] bytes) {
    return bytes.length > RowCodec.KEPT ? NOTHING : bytes;
  }

  /** The next {@code length} bytes, in {@code target} or in a new array; a large one is not made before the bytes are there. */
  private byte[] read(byte[] target, int length) throws IOException {
    byte[] bytes;
    int read;
    if (target.length < length && length > RowCodec.KEPT) {
      bytes = stream.readNBytes(length);
      read = bytes.length;
    } else {
      bytes = target.length < length ? new byte[length] : target;
      read = stream.readNBytes(bytes, 0, length);
    }
    if (read < length) {
      throw new EOFException("a buffer of rows is cut off: " + read + " of " + length + " bytes");
    }
    return bytes;
  }

  @Override
  public Product2<Object, Object> next() {
    if (!hasNext()) {
      throw new NoSuchElementException("no more rows");
    }
    int left = end - at - LENGTH_BYTES;
    int size = left < 0 ? -1 : sizeAt(at);
    if (size < smallestRow || size > left || size % WORD_BYTES != 0) {
      throw failure(RowCodec.malformed("a row of " + size + " bytes where " + left + " are left"));
    }
    row.pointTo(rows, Platform.BYTE_ARRAY_OFFSET + at + LENGTH_BYTES, size);
    at += LENGTH_BYTES + size;
    return entry;
  }

  private int sizeAt(int index) {
    return (rows[index] & 0xff) << 24 | (rows[index + 1] & 0xff) << 16 | (rows[index + 2] & 0xff) << 8
        | rows[index + 3] & 0xff;
  }
}
