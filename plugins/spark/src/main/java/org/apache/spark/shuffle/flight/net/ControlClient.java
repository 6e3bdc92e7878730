package org.apache.spark.shuffle.flight.net;

import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
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
 * Calls of the control service; they block, but for {@link #registerShuffle}. Each retries while the server cannot be reached
 * and gives up after the connect timeout; whatever goes wrong is a {@link FlightException} that names the address.
 */
public final class ControlClient {
  private static final int PROTOCOL = 1;
  private static final String SERVICE = "flight_shuffle.v1.ShuffleControl";
  private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
  private static final Duration LONG_AGO = Duration.ofSeconds(1);
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

  /** Sends the request, and does not wait. */
  public Sent<RegisterShuffleReply> registerShuffle(RegisterShuffleRequest request) {
    return new SentCall<>(REGISTER_SHUFFLE, request);
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
    return new SentCall<>(method, request).await();
  }

  /** A call that was sent. */
  public interface Sent<B> {
    /**
     * Blocks until it is answered; while the server cannot be reached it is sent again. So it is if it failed long before this
     * is called, which says nothing of now.
     *
     * @throws InterruptedIOException when the caller is interrupted, and the call is given up
     */
    B await() throws IOException;

    /** Blocks until nothing of it is under way, whatever has come of it. */
    void settle();
  }

  private final class SentCall<A extends MessageLite, B extends MessageLite> implements Sent<B> {
    private final MethodDescriptor<A, B> method;
    private final A request;
    private final long begun = System.nanoTime();
    private volatile Future<B> sent;

    SentCall(MethodDescriptor<A, B> method, A request) {
      this.method = method;
      this.request = request;
      send(timeout.toNanos());
    }

    private void send(long left) {
      CallOptions options = Connections.AT_ONCE.withDeadlineAfter(left, TimeUnit.NANOSECONDS);
      sent = ClientCalls.futureUnaryCall(channel.newCall(method, options), request);
    }

    @Override
    public B await() throws IOException {
      long deadline = System.nanoTime() + timeout.toNanos();
      long pause = FIRST_PAUSE.toNanos();
      if (System.nanoTime() - begun > LONG_AGO.toNanos() && sent.isDone() && !isAnswered()) {
        send(timeout.toNanos());
      }
      while (true) {
        try {
          return sent.get();
        } catch (InterruptedException e) {
          sent.cancel(true);
          Thread.currentThread().interrupt();
          throw (IOException) new InterruptedIOException("interrupted while calling " + peer).initCause(e);
        } catch (ExecutionException e) {
          Status status = Status.fromThrowable(e.getCause());
          boolean retry = status.getCode() == Status.Code.UNAVAILABLE && deadline - System.nanoTime() > pause;
          FlightException failure = FlightException.ended(peer, status, Status.trailersFromThrowable(e.getCause()));
          if (!retry || failure.code() != null || !failure.passing()) {
            throw failure;
          }
        }
        Pause.before("waiting for " + peer, Duration.ofNanos(pause));
        pause = Math.min(2 * pause, LONGEST_PAUSE.toNanos());
        channel.resetConnectBackoff();
        send(Math.max(1, deadline - System.nanoTime()));
      }
    }

    @Override
    public void settle() {
      isAnswered();
    }

    /** Blocks while it is under way. */
    private boolean isAnswered() {
      try {
        sent.get();
        return true;
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return false;
      } catch (ExecutionException | CancellationException e) {
        return false;
      }
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
