package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.CodedOutputStream;
import io.grpc.Drainable;
import io.grpc.KnownLength;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * One outgoing {@code FlightData} message: small fields, then a body that is written to gRPC straight from the batch's
 * payload array, never joined on the heap.
 *
 * <p>{@code FlightData} has four fields: 1 descriptor, 2 data_header (a bare flatbuffers {@code Message}), 3 app_metadata,
 * 1000 data_body. They are written by hand because the generated class would copy the body.
 */
public final class FlightOut {
  private static final int DESCRIPTOR = 1;
  private static final int DATA_HEADER = 2;
  private static final int APP_METADATA = 3;
  private static final int DATA_BODY = 1000;
  private static final int LENGTH_DELIMITED = 2;
  private static final int DESCRIPTOR_TYPE_CMD = 2;
  private static final byte[] PUT_SCHEMA = ArrowColumns.schemaHeader(ArrowColumns.PUT);
  private static final byte[] NOTHING = new byte[0];

  private final byte[] fields;
  private final byte[] columns;
  private final byte[] payload;
  private final int payloadLength;
  private final int padding;

  private FlightOut(byte[] fields, byte[] columns, byte[] payload, int payloadLength, int padding) {
    this.fields = fields;
    this.columns = columns;
    this.payload = payload;
    this.payloadLength = payloadLength;
    this.padding = padding;
  }

  /** The first message of a push: the schema, and the descriptor with {@code command}. */
  public static FlightOut putSchema(byte[] command) {
    byte[] descriptor =
        fields(
            out -> {
              out.writeUInt32(1, DESCRIPTOR_TYPE_CMD);
              out.writeByteArray(2, command);
            });
    return small(
        out -> {
          out.writeByteArray(DESCRIPTOR, descriptor);
          out.writeByteArray(DATA_HEADER, PUT_SCHEMA);
        });
  }

  /** A message without blocks that carries {@code metadata} only. */
  public static FlightOut control(byte[] metadata) {
    return small(out -> out.writeByteArray(APP_METADATA, metadata));
  }

  /**
   * The closed blocks of {@code batch}, with {@code metadata} beside them.
   *
   * <p>The payload array is referenced: it must not change before gRPC has framed the message.
   */
  public static FlightOut putBatch(BlockBatch batch, byte[] metadata) {
    int rows = batch.blocks();
    int columnCount = ArrowColumns.PUT.size();
    long[] buffers = new long[4 * columnCount + 6];
    int position = 0;
    for (int i = 0; i < columnCount; i++) {
      int length = rows * ArrowColumns.PUT.get(i).bytes();
      position = place(buffers, 4 * i, position, length);
    }
    position = place(buffers, 4 * columnCount, position, 8 * (rows + 1));
    byte[] columns = new byte[position];
    ByteBuffer data = ByteBuffer.wrap(columns).order(ByteOrder.LITTLE_ENDIAN);
    int partitionAt = (int) buffers[2];
    int checksumAt = (int) buffers[6];
    int rawLengthAt = (int) buffers[10];
    int recordsAt = (int) buffers[14];
    int offsetAt = (int) buffers[4 * columnCount + 2];
    for (int row = 0; row < rows; row++) {
      data.putInt(partitionAt + 4 * row, batch.partition(row));
      data.putInt(checksumAt + 4 * row, batch.checksum(row));
      data.putLong(rawLengthAt + 8 * row, batch.end(row) - batch.start(row));
      data.putLong(recordsAt + 8 * row, batch.records(row));
      data.putLong(offsetAt + 8 * (row + 1), batch.end(row));
    }
    int payloadLength = rows == 0 ? 0 : batch.end(rows - 1);
    int padding = padding(payloadLength);
    buffers[4 * columnCount + 4] = position;
    buffers[4 * columnCount + 5] = payloadLength;
    long bodyLength = (long) position + payloadLength + padding;
    byte[] header = ArrowColumns.batchHeader(rows, columnCount + 1, buffers, bodyLength);
    byte[] fields =
        fields(
            out -> {
              out.writeByteArray(DATA_HEADER, header);
              out.writeByteArray(APP_METADATA, metadata);
              out.writeUInt32NoTag(DATA_BODY << 3 | LENGTH_DELIMITED);
              out.writeUInt64NoTag(bodyLength);
            });
    return new FlightOut(fields, columns, batch.payload(), payloadLength, padding);
  }

  /** A column's empty validity buffer and its data buffer; returns where the next one may start. */
  private static int place(long[] buffers, int index, int position, int length) {
    buffers[index] = position;
    buffers[index + 2] = position;
    buffers[index + 3] = length;
    return position + length + padding(length);
  }

  private static int padding(int length) {
    return -length & 7;
  }

  private static FlightOut small(Fields fields) {
    return new FlightOut(fields(fields), NOTHING, NOTHING, 0, 0);
  }

  private interface Fields {
    void write(CodedOutputStream out) throws IOException;
  }

  private static byte[] fields(Fields fields) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    CodedOutputStream out = CodedOutputStream.newInstance(bytes);
    try {
      fields.write(out);
      out.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  private int size() {
    return fields.length + columns.length + payloadLength + padding;
  }

  /** What gRPC reads the message from; it drains it in one go, on the thread that sends. */
  InputStream stream() {
    return new Stream(this);
  }

  private static final class Stream extends InputStream implements Drainable, KnownLength {
    private static final byte[] ZEROS = new byte[8];
    private FlightOut message;

    Stream(FlightOut message) {
      this.message = message;
    }

    @Override
    public int drainTo(OutputStream target) throws IOException {
      FlightOut drained = message;
      message = null;
      target.write(drained.fields);
      target.write(drained.columns);
      target.write(drained.payload, 0, drained.payloadLength);
      target.write(ZEROS, 0, drained.padding);
      return drained.size();
    }

    @Override
    public int available() {
      return message == null ? 0 : message.size();
    }

    @Override
    public int read() {
      throw new UnsupportedOperationException("gRPC drains this stream");
    }
  }
}
