package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.ByteString;
import io.netty.buffer.Unpooled;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.zip.CRC32C;
import org.apache.spark.shuffle.flight.proto.WholeGet;

/** Pull messages as a server sends them, for tests. */
public final class Pulls {
  /** One served block; {@code checksum} is the right one unless a test wants another. */
  public record Served(long map, int partition, byte[] payload, int checksum) {
    public Served(long map, int partition, byte[] payload) {
      this(map, partition, payload, crc(payload));
    }
  }

  private Pulls() {}

  public static int crc(byte[] payload) {
    CRC32C crc = new CRC32C();
    crc.update(payload);
    return (int) crc.getValue();
  }

  /** The message with {@code blocks}, buffers aligned to 64 bytes as pyarrow may align them. */
  public static FlightIn message(List<Served> blocks) {
    int rows = blocks.size();
    int columns = ArrowColumns.GET.size();
    long[] buffers = new long[4 * columns + 6];
    ByteBuffer body = ByteBuffer.allocate(1 << 20).order(ByteOrder.LITTLE_ENDIAN);
    for (int c = 0; c < columns; c++) {
      buffers[4 * c + 2] = body.position();
      for (Served block : blocks) {
        switch (ArrowColumns.GET.get(c).name()) {
          case "map" -> body.putLong(block.map());
          case "attempt", "records" -> body.putLong(0);
          case "partition" -> body.putInt(block.partition());
          case "crc32c" -> body.putInt(block.checksum());
          default -> body.putLong(block.payload().length);
        }
      }
      buffers[4 * c + 3] = body.position() - buffers[4 * c + 2];
      align(body);
    }
    ByteArrayOutputStream payload = new ByteArrayOutputStream();
    buffers[4 * columns + 2] = body.position();
    body.putLong(0);
    for (Served block : blocks) {
      payload.writeBytes(block.payload());
      body.putLong(payload.size());
    }
    buffers[4 * columns + 3] = 8L * (rows + 1);
    align(body);
    buffers[4 * columns + 4] = body.position();
    buffers[4 * columns + 5] = payload.size();
    body.put(payload.toByteArray());
    byte[] bytes = new byte[body.position()];
    body.flip().get(bytes);
    byte[] header = ArrowColumns.batchHeader(rows, columns + 1, buffers, bytes.length);
    return new FlightIn(header, new byte[0], Unpooled.wrappedBuffer(bytes));
  }

  /** The answer to the action {@code get} with {@code blocks}, of one record each. */
  public static WholeGet whole(List<Served> blocks) {
    ByteBuffer maps = ByteBuffer.allocate(8 * blocks.size()).order(ByteOrder.LITTLE_ENDIAN);
    BlockTable table = new BlockTable();
    BlockTotals totals = new BlockTotals();
    ByteArrayOutputStream payload = new ByteArrayOutputStream();
    for (Served block : blocks) {
      int length = block.payload().length;
      maps.putLong(block.map());
      table.add(block.partition(), block.checksum(), length, length, 1);
      totals.add(block.partition(), block.checksum(), length, length, 1);
      payload.writeBytes(block.payload());
    }
    return WholeGet.newBuilder()
        .setMaps(ByteString.copyFrom(maps.flip()))
        .setAttempts(ByteString.copyFrom(new byte[8 * blocks.size()]))
        .setTable(table.toByteString())
        .setEnd(totals.toMessage())
        .setPayload(ByteString.copyFrom(payload.toByteArray()))
        .build();
  }

  private static void align(ByteBuffer body) {
    body.position((body.position() + 63) / 64 * 64);
  }
}
