package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.WireFormat;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;

/**
 * One incoming {@code FlightData} message; fields that were not sent are empty arrays.
 *
 * @param header the bare flatbuffers {@code Message} of the IPC stream
 * @param metadata app_metadata
 * @param body the IPC body: the one copy that is made on the way from the socket
 */
public record FlightIn(byte[] header, byte[] metadata, byte[] body) {
  private static final byte[] NOTHING = new byte[0];
  private static final int DATA_HEADER = 2;
  private static final int APP_METADATA = 3;
  private static final int DATA_BODY = 1000;

  /** Reads one message. The length of a field is held against what the stream has, before anything is allocated. */
  static FlightIn parse(InputStream stream) throws IOException {
    byte[] header = NOTHING;
    byte[] metadata = NOTHING;
    byte[] body = NOTHING;
    int first;
    while ((first = stream.read()) >= 0) {
      int tag = CodedInputStream.readRawVarint32(first, stream);
      if (WireFormat.getTagWireType(tag) != WireFormat.WIRETYPE_LENGTH_DELIMITED) {
        throw new IOException("not a FlightData message: field tag " + tag);
      }
      byte[] field = readField(stream);
      switch (WireFormat.getTagFieldNumber(tag)) {
        case DATA_HEADER -> header = field;
        case APP_METADATA -> metadata = field;
        case DATA_BODY -> body = field;
        default -> { } // the descriptor, or a field of a later version
      }
    }
    return new FlightIn(header, metadata, body);
  }

  private static byte[] readField(InputStream stream) throws IOException {
    int first = stream.read();
    int length = first < 0 ? -1 : CodedInputStream.readRawVarint32(first, stream);
    if (length < 0 || length > stream.available()) {
      throw new EOFException("truncated FlightData message: a field of " + length + " bytes, " + stream.available() + " left");
    }
    byte[] field = new byte[length];
    if (stream.readNBytes(field, 0, length) != length) {
      throw new EOFException("truncated FlightData message");
    }
    return field;
  }
}
