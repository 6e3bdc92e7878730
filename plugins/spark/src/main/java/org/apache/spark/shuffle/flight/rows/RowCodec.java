package org.apache.spark.shuffle.flight.rows;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdException;
import java.io.IOException;
import java.util.Locale;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4JNIFastResetCompressor;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.apache.spark.SparkConf;
import org.apache.spark.internal.config.package$;

/**
 * How {@code FlightRowWriter} compresses a buffer of rows, and {@link RowReader} expands it: whole, without the frames and
 * checksums of Spark's streams. The libraries are those that Spark's own codecs use. One thread at a time.
 *
 * <p>To find that random bytes do not shrink took a sixth of a shuffle's time. So a buffer that shrinks by less than a part of
 * {@link #LEAST_GAIN} has the ones after it stored as they are, untried: one, and each time that a try fails again twice as
 * many and one more, up to {@link #MOST_UNTRIED}.
 */
public abstract class RowCodec implements AutoCloseable {
  /** The {@link #id} of buffers that are stored as they are. */
  public static final int STORED = 0;

  /** Larger ones are stored as they are: single rows that no buffer holds. */
  static final int LARGEST = 256 << 20;

  /** Arrays up to this many bytes are kept for the next buffer; only single rows need larger ones. */
  static final int KEPT = 1 << 20;

  /** Shorter buffers say nothing of others and cost little, and Spark may plan with each byte: each is tried in full. */
  private static final int SHORT = 1 << 10;

  static final int LEAST_GAIN = 16;
  static final int MOST_UNTRIED = 15;

  private static final int LZ4 = 1;
  private static final int ZSTD = 2;
  private static final String LZ4_BLOCK = "spark.io.compression.lz4.blockSize";
  private static final String LZ4_BLOCK_DEFAULT = "32k";
  private static final String ZSTD_LEVEL = "spark.io.compression.zstd.level";

  private final int id;
  private byte[] packed = new byte[0];
  private final Untried stored = new Untried(MOST_UNTRIED);
  private boolean littleRepeats = true;

  private RowCodec(int id) {
    this.id = id;
  }

  /** The codec that the configuration asks for, or null when it is none of these. */
  public static RowCodec of(SparkConf conf) {
    if (!(Boolean) conf.get(package$.MODULE$.SHUFFLE_COMPRESS())) {
      return new None();
    }
    return switch (conf.get("spark.io.compression.codec", "lz4").toLowerCase(Locale.ROOT)) {
      case "lz4" -> new Lz4((int) conf.getSizeAsBytes(LZ4_BLOCK, LZ4_BLOCK_DEFAULT));
      case "zstd" -> new ZStandard(conf.getInt(ZSTD_LEVEL, 1));
      default -> null;
    };
  }

  /** The codec of a buffer that says it was compressed with {@code id}. */
  static RowCodec of(int id) throws IOException {
    return switch (id) {
      case STORED -> new None();
      case LZ4 -> new Lz4(KEPT);
      case ZSTD -> new ZStandard(1);
      default -> throw malformed("it is compressed with the unknown codec " + id);
    };
  }

  /** What a buffer carries to say how it is compressed: one byte. */
  int id() {
    return id;
  }

  /**
   * The bytes that Spark's own stream of this codec makes of {@code length} bytes of rows, without {@link #framing}; of
   * more than one of its blocks, what one of these says. Writes over {@link #packed}.
   */
  int sizeInSpark(byte[] rows, int length) {
    if (length > LARGEST) {
      return length;
    }
    room(bound(length));
    return Math.min(length, compress(rows, length, packed, 0));
  }

  /**
   * Bytes that Spark's own stream of this codec has beside {@code length} bytes of rows, once they are compressed.
   *
   * @param begins whether they are the first in their stream, of which there is one for each partition of a map
   */
  int framing(int length, boolean begins) {
    return 0;
  }

  /**
   * Compresses the first {@code length} bytes of {@code rows} into {@link #packed}.
   *
   * @return how many bytes that makes; {@code length} when it would not be fewer: then use {@code rows} as they are
   */
  int pack(byte[] rows, int length) {
    if (storedUntried(length)) {
      return length;
    }
    room(bound(length));
    return tried(length, compress(rows, length, packed, 0));
  }

  /** Makes room for so many bytes in {@link #packed}. */
  final void room(int most) {
    if (packed.length < most || packed.length > KEPT && most <= KEPT) {
      packed = new byte[most];
    }
  }

  /**
   * Compresses the first {@code length} bytes of {@code rows} to {@code target}, where from {@code at} on there are
   * {@link #most} bytes of room. Bytes that do not shrink are copied.
   *
   * @return how many bytes that makes; {@code length}: they are as they were
   */
  int pack(byte[] rows, int length, byte[] target, int at) {
    int size = storedUntried(length) ? length : tried(length, compress(rows, length, target, at));
    if (size == length) {
      System.arraycopy(rows, 0, target, at, length);
    }
    return size;
  }

  static boolean isShort(int length) {
    return length < SHORT;
  }

  private boolean storedUntried(int length) {
    return length > LARGEST || !isShort(length) && stored.next();
  }

  /** Records that a try gave {@code size} bytes, for the buffers after it; returns the size to store. */
  private int tried(int length, int size) {
    if (!isShort(length)) {
      stored.tried(size > length - length / LEAST_GAIN);
    }
    littleRepeats = hardlyShrinks(length, size);
    return Math.min(length, size);
  }

  private static boolean hardlyShrinks(int length, int size) {
    return size > length / 3 * 2;
  }

  /**
   * Whether a longer buffer would hardly shrink more than the last one that was tried: too little repeats in it. True as
   * long as none was.
   */
  boolean littleRepeats() {
    return littleRepeats;
  }

  /** The room that {@code length} bytes need while they are packed. */
  int most(int length) {
    return length > LARGEST ? length : Math.max(length, bound(length));
  }

  /** What {@link #pack} has made. It is written over by the next call. */
  byte[] packed() {
    return packed;
  }

  /** Expands all of {@code source} to exactly {@code length} bytes. Raises IOException when it is something else. */
  abstract void unpack(byte[] source, int sourceLength, byte[] target, int length) throws IOException;

  /** The most bytes that {@code length} bytes can become when they are compressed. */
  abstract int bound(int length);

  /** The most bytes that {@code length} compressed bytes can expand to. */
  abstract long expanded(int length);

  /** Compresses to {@code target}, where from {@code at} on there are {@link #bound} bytes of room. */
  abstract int compress(byte[] source, int length, byte[] target, int at);

  /** Frees what compressing has taken outside of the heap; needless after expanding. */
  @Override
  public void close() {}

  static IOException malformed(String why) {
    return new IOException("a buffer of rows is malformed although its checksum is right: " + why);
  }

  /** Buffers that are not tried after a try that failed: one, then each time twice as many and one more, up to {@code most}. */
  static final class Untried {
    private final int most;
    private int last;
    private int left;

    Untried(int most) {
      this.most = most;
    }

    /** Whether the next buffer is one of them. */
    boolean next() {
      if (left == 0) {
        return false;
      }
      left--;
      return true;
    }

    /** One was tried. */
    void tried(boolean failed) {
      last = failed ? Math.min(most, 2 * last + 1) : 0;
      left = last;
    }
  }

  private static final class None extends RowCodec {
    None() {
      super(STORED);
    }

    @Override
    int bound(int length) {
      return 0;
    }

    @Override
    long expanded(int length) {
      return length;
    }

    @Override
    int compress(byte[] source, int length, byte[] target, int at) {
      return length;
    }

    @Override
    void unpack(byte[] source, int sourceLength, byte[] target, int length) throws IOException {
      throw malformed("it is not compressed");
    }
  }

  /**
   * {@code fastDecompressor} is pure Java, {@code safeDecompressor} is not, and it checks both arrays' bounds.
   *
   * <p>Where little repeats, nearly all the time is spent on looking for it at each byte. So a buffer that hardly shrinks
   * has those after it looked through in larger steps ({@link LargeSteps}): that takes a third of the time, and what comes
   * out is 1 to 8 % larger, most with random hexadecimal characters in the rows. Where much repeats the steps gain nothing.
   */
  private static final class Lz4 extends RowCodec {
    /** The byte that expands most is one of a match's length: to 255 bytes. */
    private static final long EXPANSION = 255;

    /**
     * At most so many buffers are not looked through at each byte after one that has hardly shrunk. Then the next is, to
     * see. It begins with one, and each time that little was found again it is twice as many and one more.
     */
    private static final int MOST_SKIMMED = 63;

    /** Of {@code LZ4BlockOutputStream}: before each block, and at its end. */
    private static final int FRAME = 21;

    /** Bytes of a block there. */
    private final int blockSize;

    private int looked;

    private final LZ4Compressor compressor = LZ4Factory.fastestInstance().fastCompressor();
    private final LZ4SafeDecompressor decompressor = LZ4Factory.fastestInstance().safeDecompressor();
    private LZ4JNIFastResetCompressor skimming;
    private final Untried skimmed = new Untried(MOST_SKIMMED);

    Lz4(int blockSize) {
      super(LZ4);
      this.blockSize = blockSize;
    }

    @Override
    int framing(int length, boolean begins) {
      return FRAME * ((length + blockSize - 1) / blockSize + (begins ? 1 : 0));
    }

    @Override
    int sizeInSpark(byte[] rows, int length) {
      room(bound(Math.min(length, blockSize)));
      byte[] block = packed();
      if (length <= blockSize) {
        return Math.min(length, compressor.compress(rows, 0, length, block, 0));
      }
      looked++;
      int at = looked % (length / blockSize) * blockSize;
      long size = Math.min(blockSize, compressor.compress(rows, at, blockSize, block, 0));
      return (int) (size * length / blockSize);
    }

    @Override
    int bound(int length) {
      return compressor.maxCompressedLength(length);
    }

    @Override
    long expanded(int length) {
      return EXPANSION * length;
    }

    @Override
    int compress(byte[] source, int length, byte[] target, int at) {
      if (!isShort(length) && skimmed.next()) {
        return skimming.compress(source, 0, length, target, at, target.length - at);
      }
      int size = compressor.compress(source, 0, length, target, at, target.length - at);
      if (isShort(length)) {
        return size;
      }
      boolean skims = hardlyShrinks(length, size) && LargeSteps.KNOWN;
      if (skims && skimming == null) {
        skimming = LargeSteps.compressor();
      }
      skimmed.tried(skims);
      return size;
    }

    @Override
    public void close() {
      if (skimming != null) {
        skimming.close();
        skimming = null;
        skimmed.tried(false);
      }
    }

    @Override
    void unpack(byte[] source, int sourceLength, byte[] target, int length) throws IOException {
      try {
        if (decompressor.decompress(source, 0, sourceLength, target, 0, length) == length) {
          return;
        }
      } catch (LZ4Exception e) {
        throw malformed(e.getMessage());
      }
      throw malformed("it is shorter than it says");
    }
  }

  /** LZ4's "acceleration". The lz4-java of Spark 4.3 has it, those of 4.0 to 4.2 have not. */
  private static final class LargeSteps {
    private static final int BYTES = 8; // rows consist of words: with 6 or 12 less is found, and not sooner

    static final boolean KNOWN = known();

    /** To be closed: it has memory outside of the heap. */
    static LZ4JNIFastResetCompressor compressor() {
      return LZ4Factory.fastestInstance().fastResetCompressor(BYTES);
    }

    private static boolean known() {
      try {
        compressor().close();
        return true;
      } catch (LinkageError | UnsupportedOperationException e) {
        return false; // an older lz4-java, or one whose native part does not load here
      }
    }
  }

  private static final class ZStandard extends RowCodec {
    /** A block of 4 bytes, a header of 3 and the byte to repeat, expands to up to 128 KiB (RFC 8878, 3.1.1.2). */
    private static final long EXPANSION = (128 << 10) / 4;

    private final int level;

    ZStandard(int level) {
      super(ZSTD);
      this.level = level;
    }

    @Override
    int bound(int length) {
      return Math.toIntExact(Zstd.compressBound(length));
    }

    @Override
    long expanded(int length) {
      return EXPANSION * length;
    }

    @Override
    int compress(byte[] source, int length, byte[] target, int at) {
      return (int) Zstd.compressByteArray(target, at, target.length - at, source, 0, length, level);
    }

    @Override
    void unpack(byte[] source, int sourceLength, byte[] target, int length) throws IOException {
      try {
        if (Zstd.decompressByteArray(target, 0, length, source, 0, sourceLength) == length) {
          return;
        }
      } catch (ZstdException e) {
        throw malformed(e.getMessage());
      }
      throw malformed("it is shorter than it says");
    }
  }
}
