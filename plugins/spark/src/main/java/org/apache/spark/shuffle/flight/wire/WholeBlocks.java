package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.spark.shuffle.flight.proto.WholeGet;

/** The blocks of a small pull, as the action {@code get} answers with them; on the heap. */
public final class WholeBlocks implements PulledBlocks {
  private static final int ID_BYTES = Long.BYTES;

  private final ByteBuffer maps;
  private final ByteBuffer table;
  private final ByteBuf body;
  private final int[] starts;

  private WholeBlocks(WholeGet answer, int rows) throws IOException {
    this.maps = littleEndian(answer.getMaps());
    this.table = littleEndian(answer.getTable());
    this.starts = new int[rows + 1];
    long end = 0;
    for (int row = 0; row < rows; row++) {
      long length = table.getLong(field(row, 8));
      end += length;
      if (length < 0 || end > answer.getPayload().size()) {
        throw new IOException("block " + row + " has " + length + " bytes, of " + answer.getPayload().size() + " in all");
      }
      starts[row + 1] = (int) end;
    }
    if (end != answer.getPayload().size()) {
      throw new IOException(rows + " blocks of " + end + " bytes with " + answer.getPayload().size());
    }
    this.body = Unpooled.wrappedBuffer(answer.getPayload().toByteArray());
  }

  /** Reads an answer without copying what it holds. */
  public static WholeGet parse(byte[] result) throws IOException {
    var in = UnsafeByteOperations.unsafeWrap(result).newCodedInput();
    in.enableAliasing(true);
    return WholeGet.parseFrom(in);
  }

  /** The blocks of {@code answer}. All of it comes from the peer and is held against its sizes before it is used. */
  public static WholeBlocks of(WholeGet answer) throws IOException {
    int rows = answer.getTable().size() / BlockTable.ROW_BYTES;
    if (answer.getTable().size() != rows * BlockTable.ROW_BYTES || answer.getMaps().size() != rows * ID_BYTES
        || answer.getAttempts().size() != rows * ID_BYTES) {
      throw new IOException(
          "an answer of " + answer.getTable().size() + " bytes of table, " + answer.getMaps().size() + " of maps and "
              + answer.getAttempts().size() + " of attempts");
    }
    return new WholeBlocks(answer, rows);
  }

  private static ByteBuffer littleEndian(ByteString bytes) {
    return bytes.asReadOnlyByteBuffer().slice().order(ByteOrder.LITTLE_ENDIAN); // it is a view of the whole answer
  }

  private static int field(int row, int offset) {
    return row * BlockTable.ROW_BYTES + offset;
  }

  @Override
  public int rows() {
    return starts.length - 1;
  }

  @Override
  public long map(int row) {
    return maps.getLong(row * ID_BYTES);
  }

  @Override
  public int partition(int row) {
    return table.getInt(field(row, 0));
  }

  @Override
  public int checksum(int row) {
    return table.getInt(field(row, 4));
  }

  @Override
  public int length(int row) {
    return starts[row + 1] - starts[row];
  }

  @Override
  public long rawLength(int row) {
    return table.getLong(field(row, 16));
  }

  @Override
  public long records(int row) {
    return table.getLong(field(row, 24));
  }

  @Override
  public int offset(int row) {
    return starts[row];
  }

  @Override
  public ByteBuf body() {
    return body;
  }
}
