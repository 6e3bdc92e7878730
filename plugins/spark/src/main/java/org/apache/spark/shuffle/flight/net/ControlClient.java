package org.apache.spark.shuffle.flight.net;

import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.proto.HeartbeatReply;
import org.apache.spark.shuffle.flight.proto.HeartbeatRequest;
import org.apache.spark.shuffle.flight.proto.HelloReply;
import org.apache.spark.shuffle.flight.proto.HelloRequest;
import org.apache.spark.shuffle.flight.proto.LocateReply;
import org.apache.spark.shuffle.flight.proto.LocateRequest;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PlaceReply;
import org.apache.spark.shuffle.flight.proto.PlaceRequest;
import org.apache.spark.shuffle.flight.proto.RegisterAppReply;
import org.apache.spark.shuffle.flight.proto.RegisterAppRequest;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleReply;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleRequest;
import org.apache.spark.shuffle.flight.proto.ReportLostReply;
import org.apache.spark.shuffle.flight.proto.ReportLostRequest;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.UnregisterAppReply;
import org.apache.spark.shuffle.flight.proto.UnregisterAppRequest;
import org.apache.spark.shuffle.flight.proto.UnregisterShuffleReply;
import org.apache.spark.shuffle.flight.proto.UnregisterShuffleRequest;

/**
 * Blocking calls of the control service. Each retries while the server cannot be reached and gives up after the connect
 * timeout; whatever goes wrong is a {@link FlightException} that names the address.
 */
public final class ControlClient {
  private static final int PROTOCOL = 1;
  private static final String SERVICE = "flight_shuffle.v1.ShuffleControl";
  private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

  private static final MethodDescriptor<HelloRequest, HelloReply> HELLO =
      unary("Hello", HelloRequest.parser(), HelloReply.parser());
  private static final MethodDescriptor<RegisterAppRequest, RegisterAppReply> REGISTER_APP =
      unary("RegisterApp", RegisterAppRequest.parser(), RegisterAppReply.parser());
  private static final MethodDescriptor<HeartbeatRequest, HeartbeatReply> HEARTBEAT =
      unary("Heartbeat", HeartbeatRequest.parser(), HeartbeatReply.parser());
  private static final MethodDescriptor<UnregisterAppRequest, UnregisterAppReply> UNREGISTER_APP =
      unary("UnregisterApp", UnregisterAppRequest.parser(), UnregisterAppReply.parser());
  private static final MethodDescriptor<RegisterShuffleRequest, RegisterShuffleReply> REGISTER_SHUFFLE =
      unary("RegisterShuffle", RegisterShuffleRequest.parser(), RegisterShuffleReply.parser());
  private static final MethodDescriptor<UnregisterShuffleRequest, UnregisterShuffleReply> UNREGISTER_SHUFFLE =
      unary("UnregisterShuffle", UnregisterShuffleRequest.parser(), UnregisterShuffleReply.parser());
  private static final MethodDescriptor<PlaceRequest, PlaceReply> PLACE =
      unary("Place", PlaceRequest.parser(), PlaceReply.parser());
  private static final MethodDescriptor<LocateRequest, LocateReply> LOCATE =
      unary("Locate", LocateRequest.parser(), LocateReply.parser());
  private static final MethodDescriptor<ReportLostRequest, ReportLostReply> REPORT_LOST =
      unary("ReportLost", ReportLostRequest.parser(), ReportLostReply.parser());

  private final ManagedChannel channel;
  private final String peer;
  private final Duration timeout;

  ControlClient(ManagedChannel channel, String address, Duration timeout) {
    this.channel = channel;
    this.peer = "Flight Shuffle server " + address;
    this.timeout = timeout;
  }

  /** Says who this is, and learns the workers. */
  public HelloReply hello(String client) throws IOException {
    return call(HELLO, HelloRequest.newBuilder().setProtocol(PROTOCOL).setClient(client).build());
  }

  /** @param instance random per run: the same app and instance again is a no-op */
  public RegisterAppReply registerApp(String app, String instance, String name) throws IOException {
    return call(
        REGISTER_APP, RegisterAppRequest.newBuilder().setApp(app).setInstance(instance).setName(name).build());
  }

  public HeartbeatReply heartbeat(String app) throws IOException {
    return call(HEARTBEAT, HeartbeatRequest.newBuilder().setApp(app).build());
  }

  public void unregisterApp(String app) throws IOException {
    call(UNREGISTER_APP, UnregisterAppRequest.newBuilder().setApp(app).build());
  }

  public RegisterShuffleReply registerShuffle(RegisterShuffleRequest request) throws IOException {
    return call(REGISTER_SHUFFLE, request);
  }

  /** @param shuffles at least one, at most 10,000 */
  public void unregisterShuffles(String app, List<Integer> shuffles) throws IOException {
    UnregisterShuffleRequest.Builder request =
        UnregisterShuffleRequest.newBuilder()
            .setShuffle(ShuffleKey.newBuilder().setApp(app).setShuffle(shuffles.get(0)));
    shuffles.stream().skip(1).forEach(request::addMore);
    call(UNREGISTER_SHUFFLE, request.build());
  }

  /** Asks for the workers to push a map output to that is written at {@code host}, best first. */
  public PlaceReply place(ShuffleKey shuffle, String host, Collection<String> avoid) throws IOException {
    return call(PLACE, PlaceRequest.newBuilder().setShuffle(shuffle).setHost(host).addAllAvoid(avoid).build());
  }

  /** A page of where the outputs of the maps from {@code first} to before {@code end} lie. */
  LocateReply locate(ShuffleKey shuffle, long first, long end) throws IOException {
    return call(LOCATE, LocateRequest.newBuilder().setShuffle(shuffle).setFirstMap(first).setEndMap(end).build());
  }

  /** Tells the master which map outputs a reader could not get. */
  public void reportLost(ShuffleKey shuffle, List<MapAttempt> outputs, String reason) throws IOException {
    call(
        REPORT_LOST,
        ReportLostRequest.newBuilder().setShuffle(shuffle).addAllOutputs(outputs).setReason(reason).build());
  }

  private <A extends MessageLite, B extends MessageLite> B call(MethodDescriptor<A, B> method, A request)
      throws IOException {
    long deadline = System.nanoTime() + timeout.toNanos();
    long pause = FIRST_PAUSE.toNanos();
    while (true) {
      long left = Math.max(1, deadline - System.nanoTime());
      try {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(left, TimeUnit.NANOSECONDS);
        return ClientCalls.blockingUnaryCall(channel, method, options, request);
      } catch (StatusRuntimeException e) {
        if (Thread.currentThread().isInterrupted()) {
          throw (IOException) new InterruptedIOException("interrupted while calling " + peer).initCause(e);
        }
        boolean retry = e.getStatus().getCode() == Status.Code.UNAVAILABLE && deadline - System.nanoTime() > pause;
        FlightException failure = FlightException.ended(peer, e.getStatus(), e.getTrailers());
        if (!retry || failure.code() != null || !failure.passing()) {
          throw failure;
        }
      }
      Pause.before("waiting for " + peer, Duration.ofNanos(pause));
      pause = Math.min(2 * pause, LONGEST_PAUSE.toNanos());
      channel.resetConnectBackoff();
    }
  }

  private static <A extends MessageLite, B extends MessageLite> MethodDescriptor<A, B> unary(
      String name, Parser<A> request, Parser<B> reply) {
    return MethodDescriptor.newBuilder(new MessageMarshaller<>(request), new MessageMarshaller<>(reply))
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName(MethodDescriptor.generateFullMethodName(SERVICE, name))
        .build();
  }

  private record MessageMarshaller<T extends MessageLite>(Parser<T> parser) implements MethodDescriptor.Marshaller<T> {
    @Override
    public InputStream stream(T message) {
      return message.toByteString().newInput();
    }

    @Override
    public T parse(InputStream stream) {
      try {
        return parser.parseFrom(stream);
      } catch (IOException e) {
        throw Status.INTERNAL.withDescription("malformed reply: " + e.getMessage()).withCause(e).asRuntimeException();
      }
    }
  }
}
