package org.apache.spark.shuffle.flight.rows;

import java.nio.ByteBuffer;

/**
 * Makes blocks of buffers of rows: packed by column where that pays ({@link ColumnPacker}), compressed, behind a {@link
 * RowHeader}. One thread at a time: {@link #start}, then one of the two ways to {@link #make} it, then its figures.
 *
 * <p>Some buffers are made both ways, first each second one and in the end one in {@link #MOST_BETWEEN}. That says which way
 * those after it are made.
 */
public final class RowBlockWriter implements AutoCloseable {
  private static final int MOST_BETWEEN = 31;

  private final RowCodec plain;
  private final RowCodec overPacked;
  private final ColumnPacker packer;
  private final ByteBuffer header = ByteBuffer.allocate(RowHeader.PACKED_BYTES);
  private boolean packs;
  private int between;
  private int untilSample;
  private final SparkSizes sizes = new SparkSizes();

  private RowCodec codec;
  private byte[] rows;
  private int rawLength;
  private byte[] source;
  private int sourceLength;
  private int size;
  private int inSpark;
  private boolean sampled;

  /**
   * @param plain compresses rows as they are
   * @param overPacked one of the same kind, for packed rows: it finds out what pays for these
   * @param packer null: rows are not packed
   */
  public RowBlockWriter(RowCodec plain, RowCodec overPacked, ColumnPacker packer) {
    this.plain = plain;
    this.overPacked = overPacked;
    this.packer = packer;
    this.packs = packer != null;
  }

  /** Begins a block of the first {@code length} bytes of {@code rows}. */
  public void start(byte[] rows, int length) {
    this.rows = rows;
    rawLength = length;
    size = 0;
    inSpark = 0;
    sampled = packer != null && (untilSample == 0 || RowCodec.isShort(length));
    int columns = packs || sampled ? packer.pack(rows, length) : 0;
    if (columns > 0) {
      use(overPacked, packer.packed(), columns);
    } else {
      use(plain, rows, length);
    }
    if (columns == ColumnPacker.ALONE) {
      return;
    }
    if (!sampled) {
      untilSample--;
    } else if (columns == 0) {
      decided(false);
    } else {
      sample(columns);
    }
  }

  private void use(RowCodec next, byte[] bytes, int length) {
    codec = next;
    source = bytes;
    sourceLength = length;
  }

  /** Finds out which way is the shorter one. */
  private void sample(int columns) {
    size = overPacked.pack(packer.packed(), columns);
    inSpark = plain.sizeInSpark(rows, rawLength);
    boolean pays = size + RowHeader.PACKED_BYTES <= inSpark + RowHeader.BYTES;
    if (pays) {
      sizes.add(rawLength, size, inSpark);
    } else {
      size = 0;
      use(plain, rows, rawLength);
    }
    decided(pays);
  }

  private void decided(boolean pays) {
    between = pays == packs ? Math.min(MOST_BETWEEN, 2 * between + 1) : 1;
    packs = pays;
    untilSample = between;
  }

  /** The room that {@link #make(byte[], int)} needs. */
  public int most() {
    int bytes = size > 0 ? size : codec.most(sourceLength);
    return bytes > Integer.MAX_VALUE - headerLength() ? Integer.MAX_VALUE : headerLength() + bytes;
  }

  /** Writes the block to {@code target}, where from {@code at} on there are {@link #most} bytes of room; its length. */
  public int make(byte[] target, int at) {
    int begin = at + headerLength();
    if (size == 0) {
      size = codec.pack(source, sourceLength, target, begin);
    } else {
      System.arraycopy(bytes(), 0, target, begin, size);
    }
    System.arraycopy(header(), 0, target, at, headerLength());
    return headerLength() + size;
  }

  /** Makes the block where it is: {@link #header}, and {@link #size} of {@link #bytes}. */
  public void make() {
    if (size == 0) {
      size = codec.pack(source, sourceLength);
    }
  }

  /** What goes before the bytes: {@link #headerLength} of these. */
  public byte[] header() {
    int id = isCompressed() ? codec.id() : RowCodec.STORED;
    if (isPacked()) {
      RowHeader.putPacked(header, id, size, rawLength, sourceLength);
    } else {
      RowHeader.put(header, id, size, rawLength);
    }
    return header.array();
  }

  public int headerLength() {
    return isPacked() ? RowHeader.PACKED_BYTES : RowHeader.BYTES;
  }

  public byte[] bytes() {
    return isCompressed() ? codec.packed() : source;
  }

  /** Bytes of the block behind its header. */
  public int size() {
    return size;
  }

  private boolean isCompressed() {
    return size < sourceLength;
  }

  private boolean isPacked() {
    return codec == overPacked;
  }

  /**
   * The bytes that Spark's own writers would make of the rows, exactly or about that. Spark plans with these. To be called
   * once the block is made.
   *
   * @param begins whether the rows are the first of their partition
   */
  public int lengthInSpark(boolean begins) {
    if (inSpark == 0) {
      inSpark = isPacked() ? estimate() : size;
    }
    return inSpark + plain.framing(rawLength, begins);
  }

  private int estimate() {
    int known = sizes.estimate(rawLength, size);
    if (known > 0) {
      return known;
    }
    int found = plain.sizeInSpark(rows, rawLength);
    sizes.add(rawLength, size, found);
    return found;
  }

  /** Whether the block was made both ways. */
  boolean isSample() {
    return sampled;
  }

  /** Whether longer buffers would hardly shrink more than the last ones. */
  public boolean littleRepeats() {
    return (packs ? overPacked : plain).littleRepeats();
  }

  /** Frees what compressing has taken outside of the heap. */
  @Override
  public void close() {
    plain.close();
    if (overPacked != plain) {
      overPacked.close();
    }
  }
}
