package org.apache.spark.shuffle.flight.wire;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;

/**
 * The blocks of one pull message, read in place: columns and payloads stay in the message's body, which is the message's.
 *
 * <p>Everything in the header comes from the peer and is held against the body before it is used.
 */
public final class PulledBatch implements PulledBlocks {
  private static final int COLUMNS = ArrowColumns.GET.size();
  private static final int BUFFERS = 2 * COLUMNS + 3;

  private final ByteBuf body;
  private final int rows;
  private final int[] at = new int[COLUMNS + 2];

  private PulledBatch(ByteBuf body, int rows) {
    this.body = body;
    this.rows = rows;
  }

  /** The batch in {@code message}, or null when it holds none (the schema, or metadata only). */
  public static PulledBatch of(FlightIn message) throws IOException {
    if (message.header().length == 0) {
      return null;
    }
    try {
      return decode(message);
    } catch (IndexOutOfBoundsException | ArithmeticException e) {
      throw new IOException("malformed Arrow record batch: " + e.getMessage(), e);
    }
  }

  private static PulledBatch decode(FlightIn message) throws IOException {
    Message header = Message.getRootAsMessage(ByteBuffer.wrap(message.header()));
    if (header.headerType() == MessageHeader.Schema) {
      return null;
    }
    RecordBatch batch = (RecordBatch) header.header(new RecordBatch());
    if (header.headerType() != MessageHeader.RecordBatch || batch == null) {
      throw new IOException("not a record batch: Arrow message type " + header.headerType());
    }
    if (batch.compression() != null || batch.buffersLength() != BUFFERS || batch.nodesLength() != COLUMNS + 1) {
      throw new IOException(
          "not a batch of blocks: " + batch.nodesLength() + " columns, " + batch.buffersLength() + " buffers");
    }
    PulledBatch result = new PulledBatch(message.body(), Math.toIntExact(batch.length()));
    for (int i = 0; i < COLUMNS; i++) {
      result.at[i] = result.buffer(batch, 2 * i + 1, (long) result.rows * ArrowColumns.GET.get(i).bytes());
    }
    if (result.rows > 0) {
      result.at[COLUMNS] = result.buffer(batch, 2 * COLUMNS + 1, 8L * (result.rows + 1));
      result.at[COLUMNS + 1] = result.buffer(batch, 2 * COLUMNS + 2, result.payloadOffset(result.rows));
      result.checkOffsets();
    }
    return result;
  }

  /** Where buffer {@code index} starts, at least {@code length} bytes of which must lie in the body. */
  private int buffer(RecordBatch batch, int index, long length) throws IOException {
    long offset = batch.buffers(index).offset();
    if (length < 0 || offset < 0 || offset > body.readableBytes() - length) {
      throw new IOException("buffer " + index + " (" + offset + "+" + length + ") outside a body of " + body.readableBytes());
    }
    return (int) offset;
  }

  private void checkOffsets() throws IOException {
    for (int row = 0; row < rows; row++) {
      if (payloadOffset(row) < 0 || payloadOffset(row) > payloadOffset(row + 1)) {
        throw new IOException("payload offsets of block " + row + " run backwards");
      }
    }
  }

  private long payloadOffset(int row) {
    return body.getLongLE(at[COLUMNS] + 8 * row);
  }

  @Override
  public int rows() {
    return rows;
  }

  @Override
  public long map(int row) {
    return body.getLongLE(at[0] + 8 * row);
  }

  public long attempt(int row) {
    return body.getLongLE(at[1] + 8 * row);
  }

  @Override
  public int partition(int row) {
    return body.getIntLE(at[2] + 4 * row);
  }

  @Override
  public int checksum(int row) {
    return body.getIntLE(at[3] + 4 * row);
  }

  @Override
  public long rawLength(int row) {
    return body.getLongLE(at[4] + 8 * row);
  }

  @Override
  public long records(int row) {
    return body.getLongLE(at[5] + 8 * row);
  }

  @Override
  public int offset(int row) {
    return at[COLUMNS + 1] + (int) payloadOffset(row);
  }

  @Override
  public int length(int row) {
    return (int) (payloadOffset(row + 1) - payloadOffset(row));
  }

  @Override
  public ByteBuf body() {
    return body;
  }
}
