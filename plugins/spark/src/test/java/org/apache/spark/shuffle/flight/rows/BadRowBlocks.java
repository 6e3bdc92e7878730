package org.apache.spark.shuffle.flight.rows;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** Makes bad blocks of rows out of good ones. */
final class BadRowBlocks {
  private static final int[] LIMITS = {0, 1, -1, 7, 255, 256, 1 << 16, ColumnPacker.LONGEST, ColumnPacker.LONGEST + 1,
    RowCodec.LARGEST, RowCodec.LARGEST + 1, Integer.MAX_VALUE, Integer.MIN_VALUE};

  private final Random random;

  BadRowBlocks(Random random) {
    this.random = random;
  }

  /** One of the good ones with a few changes, or the beginning of one and the end of another. */
  FuzzedBlock of(List<FuzzedBlock> good) {
    FuzzedBlock block = good.get(random.nextInt(good.size()));
    byte[] bytes = block.bytes().clone();
    if (random.nextInt(10) == 0) {
      byte[] other = good.get(random.nextInt(good.size())).bytes();
      int from = random.nextInt(other.length + 1);
      bytes = joined(Arrays.copyOf(bytes, random.nextInt(bytes.length + 1)), Arrays.copyOfRange(other, from, other.length));
    }
    for (int changes = 1 + random.nextInt(3); changes > 0 && bytes.length > 0; changes--) {
      bytes = changed(bytes);
    }
    int fields = random.nextInt(20) == 0 ? random.nextInt(200) : block.fields();
    return new FuzzedBlock(fields, bytes);
  }

  private byte[] changed(byte[] bytes) {
    switch (random.nextInt(8)) {
      case 0 -> {
        return Arrays.copyOf(bytes, random.nextInt(bytes.length + 1));
      }
      case 1 -> {
        int at = random.nextInt(bytes.length);
        return joined(Arrays.copyOf(bytes, at), Arrays.copyOfRange(bytes, Math.max(0, at - random.nextInt(9)), bytes.length));
      }
      case 2 -> putNumber(bytes, 4 * (1 + random.nextInt(3)));
      case 3, 4 -> putLengths(bytes);
      case 5 -> bytes[random.nextInt(Math.min(bytes.length, RowHeader.PACKED_BYTES + 24))] = (byte) random.nextInt();
      default -> bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
    }
    return bytes;
  }

  private void putNumber(byte[] bytes, int at) {
    if (bytes.length >= at + Integer.BYTES) {
      ByteBuffer buffer = ByteBuffer.wrap(bytes);
      boolean near = random.nextBoolean();
      buffer.putInt(at, near ? buffer.getInt(at) + random.nextInt(17) - 8 : LIMITS[random.nextInt(LIMITS.length)]);
    }
  }

  /** A block whose columns are damaged, and whose header fits them, without a codec: so that they are looked at. */
  private void putLengths(byte[] bytes) {
    if (bytes.length <= RowHeader.PACKED_BYTES) {
      return;
    }
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    int left = bytes.length - RowHeader.PACKED_BYTES;
    int raw = random.nextBoolean() ? buffer.getInt(8) : left + random.nextInt(4 * left);
    RowHeader.putPacked(buffer, RowCodec.STORED, left, raw, left);
    int near = RowHeader.PACKED_BYTES + random.nextInt(Math.min(left, 1 + random.nextInt(left)));
    bytes[near] = random.nextBoolean() ? (byte) random.nextInt() : (byte) (random.nextInt(3) << 4 | random.nextInt(9));
  }

  private static byte[] joined(byte[] first, byte[] second) {
    byte[] all = Arrays.copyOf(first, first.length + second.length);
    System.arraycopy(second, 0, all, first.length, second.length);
    return all;
  }
}
