package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.WireFormat;
import io.grpc.HasByteBuffer;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;

/**
 * One incoming {@code FlightData} message; fields that were not sent are empty.
 *
 * @param header the bare flatbuffers {@code Message} of the IPC stream
 * @param metadata app_metadata
 * @param body the IPC body: the one copy that is made on the way from the socket. Released by {@link #close}
 */
public record FlightIn(byte[] header, byte[] metadata, ByteBuf body) implements AutoCloseable {
  private static final byte[] NOTHING = new byte[0];
  private static final int DATA_HEADER = 2;
  private static final int APP_METADATA = 3;
  private static final int DATA_BODY = 1000;

  /**
   * Reads one message. The length of a field is held against what the stream has, before anything is allocated.
   *
   * @param memory for the body
   */
  static FlightIn parse(InputStream stream, ByteBufAllocator memory) throws IOException {
    byte[] header = NOTHING;
    byte[] metadata = NOTHING;
    ByteBuf body = Unpooled.EMPTY_BUFFER;
    try {
      int first;
      while ((first = stream.read()) >= 0) {
        int tag = CodedInputStream.readRawVarint32(first, stream);
        if (WireFormat.getTagWireType(tag) != WireFormat.WIRETYPE_LENGTH_DELIMITED) {
          throw new IOException("not a FlightData message: field tag " + tag);
        }
        int length = length(stream);
        switch (WireFormat.getTagFieldNumber(tag)) {
          case DATA_HEADER -> header = bytes(stream, length);
          case APP_METADATA -> metadata = bytes(stream, length);
          case DATA_BODY -> {
            body.release();
            body = Unpooled.EMPTY_BUFFER;
            body = body(stream, length, memory);
          }
          default -> bytes(stream, length); // the descriptor, or a field of a later version
        }
      }
      return new FlightIn(header, metadata, body.retain());
    } finally {
      body.release();
    }
  }

  private static int length(InputStream stream) throws IOException {
    int first = stream.read();
    int length = first < 0 ? -1 : CodedInputStream.readRawVarint32(first, stream);
    if (length < 0 || length > stream.available()) {
      throw new EOFException("truncated FlightData message: a field of " + length + " bytes, " + stream.available() + " left");
    }
    return length;
  }

  private static byte[] bytes(InputStream stream, int length) throws IOException {
    byte[] field = new byte[length];
    if (stream.readNBytes(field, 0, length) != length) {
      throw new EOFException("truncated FlightData message");
    }
    return field;
  }

  private static ByteBuf body(InputStream stream, int length, ByteBufAllocator memory) throws IOException {
    ByteBuf body = allocate(memory, length);
    try {
      while (body.isWritable()) {
        copySome(stream, body);
      }
      return body.retain();
    } finally {
      body.release();
    }
  }

  private static ByteBuf allocate(ByteBufAllocator memory, int length) {
    try {
      return memory.buffer(length, length);
    } catch (OutOfMemoryError e) {
      return Unpooled.buffer(length, length); // outside of the heap there is too little: perhaps there is more on it
    }
  }

  /** What gRPC has received lies in netty's buffers: from there it is copied at once, not by way of an array. */
  private static void copySome(InputStream stream, ByteBuf target) throws IOException {
    int left = target.writableBytes();
    ByteBuffer piece =
        stream instanceof HasByteBuffer pieces && pieces.byteBufferSupported() ? pieces.getByteBuffer() : null;
    if (piece != null && piece.hasRemaining()) {
      piece.limit(piece.position() + Math.min(piece.remaining(), left));
      int length = piece.remaining();
      target.writeBytes(piece);
      stream.skipNBytes(length);
    } else if (target.writeBytes(stream, left) <= 0) {
      throw new EOFException("truncated FlightData message");
    }
  }

  @Override
  public void close() {
    body.release();
  }
}
