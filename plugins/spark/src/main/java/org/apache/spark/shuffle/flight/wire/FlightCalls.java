package org.apache.spark.shuffle.flight.wire;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.Marshaller;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/** The Arrow Flight calls that a shuffle makes, with marshallers that do not copy payloads. */
public final class FlightCalls {
  private static final ByteBufAllocator HEAP = new UnpooledByteBufAllocator(false, true);
  private static final String SERVICE = "arrow.flight.protocol.FlightService";

  /** {@code stream FlightData -> stream PutResult}; a reply is given as its app_metadata. */
  public static final MethodDescriptor<FlightOut, byte[]> DO_PUT =
      method("DoPut", MethodType.BIDI_STREAMING, new OutMarshaller(), new BytesMarshaller());

  /** {@code Ticket -> stream FlightData}; the ticket is given as its bytes. Messages lie on the heap. */
  public static final MethodDescriptor<byte[], FlightIn> DO_GET =
      method("DoGet", MethodType.SERVER_STREAMING, new BytesMarshaller(), new InMarshaller(HEAP));

  /** The same for large messages: their bodies are {@link FetchedMemory}, and have to be released. */
  public static final MethodDescriptor<byte[], FlightIn> DO_GET_POOLED =
      method("DoGet", MethodType.SERVER_STREAMING, new BytesMarshaller(), new InMarshaller(FetchedMemory.POOL));

  /** {@code Action -> stream Result}; a result is given as its body. */
  public static final MethodDescriptor<FlightAction, byte[]> DO_ACTION =
      method("DoAction", MethodType.SERVER_STREAMING, new ActionMarshaller(), new BytesMarshaller());

  /** The same, for a caller that wants to hear when the call has its connection: gRPC tells that of streams only. */
  public static final MethodDescriptor<FlightAction, byte[]> DO_ACTION_WHEN_READY =
      method("DoAction", MethodType.BIDI_STREAMING, new ActionMarshaller(), new BytesMarshaller());

  private FlightCalls() {}

  private static <A, B> MethodDescriptor<A, B> method(String name, MethodType type, Marshaller<A> in, Marshaller<B> out) {
    return MethodDescriptor.newBuilder(in, out)
        .setType(type)
        .setFullMethodName(MethodDescriptor.generateFullMethodName(SERVICE, name))
        .build();
  }

  private static final class OutMarshaller implements Marshaller<FlightOut> {
    @Override
    public InputStream stream(FlightOut message) {
      return message.stream();
    }

    @Override
    public FlightOut parse(InputStream stream) {
      throw new UnsupportedOperationException("a client only sends these");
    }
  }

  private static final class ActionMarshaller implements Marshaller<FlightAction> {
    @Override
    public InputStream stream(FlightAction action) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream(action.body().length + 64);
      CodedOutputStream out = CodedOutputStream.newInstance(bytes);
      try {
        out.writeString(1, action.type());
        out.writeByteArray(2, action.body());
        out.flush();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      return new ByteArrayInputStream(bytes.toByteArray());
    }

    @Override
    public FlightAction parse(InputStream stream) {
      throw new UnsupportedOperationException("a client only sends these");
    }
  }

  private static final class InMarshaller implements Marshaller<FlightIn> {
    private final ByteBufAllocator memory;

    InMarshaller(ByteBufAllocator memory) {
      this.memory = memory;
    }

    @Override
    public InputStream stream(FlightIn message) {
      throw new UnsupportedOperationException("a client only receives these");
    }

    @Override
    public FlightIn parse(InputStream stream) {
      try {
        return FlightIn.parse(stream, memory);
      } catch (IOException e) {
        throw Status.INTERNAL.withDescription(e.getMessage()).withCause(e).asRuntimeException();
      }
    }
  }

  /** {@code Ticket}, {@code PutResult} and {@code Result}: messages whose only field, number 1, is bytes. */
  private static final class BytesMarshaller implements Marshaller<byte[]> {
    private static final int BYTES_FIELD_1 = 1 << 3 | 2;
    private static final byte[] NOTHING = new byte[0];

    @Override
    public InputStream stream(byte[] value) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream(value.length + 8);
      CodedOutputStream out = CodedOutputStream.newInstance(bytes);
      try {
        out.writeByteArray(1, value);
        out.flush();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      return new ByteArrayInputStream(bytes.toByteArray());
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        CodedInputStream in = CodedInputStream.newInstance(stream);
        byte[] value = NOTHING;
        int tag;
        while ((tag = in.readTag()) != 0) {
          if (tag == BYTES_FIELD_1) {
            value = in.readByteArray();
          } else {
            in.skipField(tag);
          }
        }
        return value;
      } catch (IOException e) {
        throw Status.INTERNAL.withDescription("malformed reply: " + e.getMessage()).withCause(e).asRuntimeException();
      }
    }
  }
}
