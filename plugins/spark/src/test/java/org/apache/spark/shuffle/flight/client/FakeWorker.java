package org.apache.spark.shuffle.flight.client;

import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.MessageLite;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.netty.NettyServerBuilder;
import io.netty.buffer.ByteBufUtil;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.shuffle.flight.proto.Error;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.apache.spark.shuffle.flight.proto.WorkerChanges;
import org.apache.spark.shuffle.flight.wire.FlightIn;

/** A worker's endpoint that says what a test wants: for what no real worker says. */
public final class FakeWorker implements AutoCloseable {
  private static final String SERVICE = "arrow.flight.protocol.FlightService";
  private static final String CONTROL = "flight_shuffle.v1.ShuffleControl";

  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final Server server;
  private final Connections connections;

  /** @param answers what a call is answered with, given its name; null: nothing, and the call goes on */
  public FakeWorker(Function<String, List<byte[]>> answers) throws IOException {
    this(answers, null);
  }

  /** @param refusal what a call ends with that is answered with nothing; null: it ends well */
  public FakeWorker(Function<String, List<byte[]>> answers, ErrorCode refusal) throws IOException {
    this(answers, refusal, List.of());
  }

  /** @param control calls of the control service that it answers as well, as the master of its own connections */
  public FakeWorker(Function<String, List<byte[]>> answers, ErrorCode refusal, List<String> control)
      throws IOException {
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
            .addService(service(SERVICE, List.of("DoPut", "DoGet", "DoAction"), answers, refusal))
            .addService(service(CONTROL, control, answers, refusal))
            .build()
            .start();
    WorkerAddress address = address();
    connections =
        new Connections(List.of(address.at()), Duration.ofSeconds(60), "test", new Credentials(null, null, null));
  }

  private static ServerServiceDefinition service(
      String called, List<String> calls, Function<String, List<byte[]>> answers, ErrorCode refusal) {
    ServerServiceDefinition.Builder service = ServerServiceDefinition.builder(called);
    for (String name : calls) {
      service.addMethod(
          MethodDescriptor.newBuilder(new RawMarshaller(), new RawMarshaller())
              .setType(MethodType.BIDI_STREAMING)
              .setFullMethodName(MethodDescriptor.generateFullMethodName(called, name))
              .build(),
          new Answering(name, answers, refusal));
    }
    return service.build();
  }

  /** Its connections know it from now on, at this port. */
  public void introduce(int port) {
    Worker worker = Worker.newBuilder().setId("w").setHost(address().host()).setPort(port).build();
    connections.learn(WorkerChanges.newBuilder().setEpoch(1).addWorkers(worker).build(), List.of());
  }

  public WorkerAddress address() {
    return new WorkerAddress("w", InetAddress.getLoopbackAddress().getHostAddress(), server.getPort());
  }

  public Connections connections() {
    return connections;
  }

  /** {@code PutResult} or {@code Result} with {@code message}. */
  public static byte[] result(MessageLite message) {
    return fields(1, message.toByteArray());
  }

  public static byte[] result(byte[] body) {
    return fields(1, body);
  }

  /** {@code FlightData}. */
  public static byte[] data(FlightIn message) {
    return fields(2, message.header(), 3, message.metadata(), 1000, ByteBufUtil.getBytes(message.body()));
  }

  private static byte[] fields(Object... numbersAndBytes) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    CodedOutputStream out = CodedOutputStream.newInstance(bytes);
    try {
      for (int i = 0; i < numbersAndBytes.length; i += 2) {
        out.writeByteArray((Integer) numbersAndBytes[i], (byte[]) numbersAndBytes[i + 1]);
      }
      out.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  @Override
  public void close() {
    connections.close();
    server.shutdownNow();
  }

  private record Answering(String name, Function<String, List<byte[]>> answers, ErrorCode refusal)
      implements ServerCallHandler<byte[], byte[]> {
    private Metadata trailers() {
      Metadata trailers = new Metadata();
      trailers.put(DETAILS, Error.newBuilder().setCode(refusal).setMessage("refused").build().toByteArray());
      return trailers;
    }

    @Override
    public ServerCall.Listener<byte[]> startCall(ServerCall<byte[], byte[]> call, Metadata headers) {
      call.request(1);
      return new ServerCall.Listener<>() {
        private boolean answered;

        @Override
        public void onMessage(byte[] message) {
          call.request(1);
          List<byte[]> all = answered ? null : answers.apply(name);
          answered = true;
          if (all == null) {
            return;
          }
          if (all.isEmpty() && refusal != null) {
            call.close(Status.FAILED_PRECONDITION, trailers());
            return;
          }
          call.sendHeaders(new Metadata());
          all.forEach(call::sendMessage);
          if (!name.equals("DoPut")) {
            call.close(Status.OK, new Metadata());
          }
        }
      };
    }
  }
}
