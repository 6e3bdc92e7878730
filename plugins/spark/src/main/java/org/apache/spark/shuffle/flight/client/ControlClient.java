package org.apache.spark.shuffle.flight.client;

import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
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
import org.apache.spark.shuffle.flight.proto.WorkersKnown;

/**
 * Calls of the control service; they block, but for {@link #registerShuffle}. Each retries while the server cannot be reached
 * and gives up after the connect timeout; whatever goes wrong is a {@link FlightException} that names the address. Of several
 * masters one leads: a call goes to the one that answered last, and to the next when that cannot be reached or does not lead.
 * A master of another registry than the application's names those of its own: this call and all that follow go there.
 */
public final class ControlClient {
  private static final String SERVICE = "flight_shuffle.v1.ShuffleControl";
  private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
  private static final Duration LONG_AGO = Duration.ofSeconds(1);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

  /** The codes with which a master refuses a request because it does not lead. */
  private static final Set<ErrorCode> NOT_LEADING = EnumSet.of(ErrorCode.SHUTTING_DOWN, ErrorCode.STALE_EPOCH);

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

  private static final int MOST_MOVES = 3; // of one call, from one registry's masters to another's

  private record Master(String name, ManagedChannel channel) {}

  /**
   * The masters of one registry.
   *
   * @param asked modulo their number: the master that answered last
   */
  private record Masters(List<HostPort> addresses, List<Master> all, AtomicInteger asked) {
    Master at(int number) {
      return all.get(Math.floorMod(number, all.size()));
    }

    int size() {
      return all.size();
    }
  }

  private final Function<HostPort, ManagedChannel> connect;
  private final Duration timeout;
  private final List<Masters> met = new CopyOnWriteArrayList<>();
  private volatile Masters masters;
  private volatile int protocol = Protocol.NEWEST;
  private volatile String registry = "";

  ControlClient(List<HostPort> addresses, Function<HostPort, ManagedChannel> connect, Duration timeout) {
    this.connect = connect;
    this.timeout = timeout;
    this.masters = meet(addresses);
  }

  private Masters meet(List<HostPort> addresses) {
    List<Master> all =
        addresses.stream()
            .map(address -> new Master("Flight Shuffle server " + address, connect.apply(address)))
            .toList();
    Masters made = new Masters(addresses, all, new AtomicInteger());
    met.add(made);
    return made;
  }

  /** Has calls go to the masters that a refusal names, unless another call has seen to that. */
  private synchronized void move(Masters refused, FlightException refusal) throws FlightException {
    List<HostPort> addresses;
    try {
      addresses = HostPort.list(refusal.masters());
    } catch (IllegalArgumentException e) {
      throw refusal;
    }
    if (masters == refused) {
      masters = met.stream().filter(each -> each.addresses().equals(addresses)).findAny().orElseGet(() -> meet(addresses));
    }
  }

  /**
   * The masters that are called, with commas between them: those that were given, or those of the registry to which a master
   * has sent this side since.
   */
  public String address() {
    return String.join(",", masters.addresses().stream().map(HostPort::toString).toList());
  }

  /** The name of the registry that greeted last, which the runs that are registered there end with; or empty. */
  public String registry() {
    return registry;
  }

  /** The version to speak, as the server has chosen it; until it has been greeted the newest one. */
  public int protocol() {
    return protocol;
  }

  /**
   * Introduces this side, agrees on a version of the protocol, and returns what has changed of the workers.
   *
   * @param known the state of the list of workers that this side has
   * @param app a run, or the name of an application that is to be registered: a master of its registry answers; or empty
   */
  public HelloReply hello(String client, WorkersKnown known, String app) throws IOException {
    HelloRequest.Builder request =
        HelloRequest.newBuilder()
            .setProtocol(Protocol.NEWEST)
            .setOldest(Protocol.OLDEST)
            .setClient(client)
            .setApp(app)
            .setKnown(known);
    HelloReply reply;
    try {
      reply = call(HELLO, request.build());
    } catch (FlightException e) {
      if (e.code() != ErrorCode.PROTOCOL_MISMATCH) {
        throw e;
      }
      reply = call(HELLO, request.setProtocol(Protocol.OLDEST).build()); // a server of version 1 takes no range
    }
    if (reply.getProtocol() < Protocol.OLDEST || reply.getProtocol() > Protocol.NEWEST) {
      throw FlightException.found(
          master().name(), ErrorCode.PROTOCOL_MISMATCH,
          "it chose protocol version " + reply.getProtocol() + ", this side speaks " + Protocol.OLDEST + " to "
              + Protocol.NEWEST + "; install the same flight-shuffle release on both sides");
    }
    protocol = reply.getProtocol();
    registry = reply.getRegistry();
    return reply;
  }

  private Master master() {
    Masters now = masters;
    return now.at(now.asked().get());
  }

  /** Registers an application, or the same once more. */
  public RegisterAppReply registerApp(RegisterAppRequest request) throws IOException {
    return call(REGISTER_APP, request);
  }

  public HeartbeatReply heartbeat(HeartbeatRequest request) throws IOException {
    return call(HEARTBEAT, request);
  }

  public void unregisterApp(String app) throws IOException {
    call(UNREGISTER_APP, UnregisterAppRequest.newBuilder().setApp(app).build());
  }

  /** Sends the request, and does not wait. */
  public Sent<RegisterShuffleReply> registerShuffle(RegisterShuffleRequest request) {
    return new SentCall<>(REGISTER_SHUFFLE, request);
  }

  /** @param shuffles of one run, at least one, at most 10,000 */
  public void unregisterShuffles(List<ShuffleKey> shuffles) throws IOException {
    UnregisterShuffleRequest.Builder request = UnregisterShuffleRequest.newBuilder().setShuffle(shuffles.get(0));
    shuffles.stream().skip(1).forEach(
        shuffle -> request.addMore(shuffle.getShuffle()).addGenerations(shuffle.getGeneration()));
    call(UNREGISTER_SHUFFLE, request.build());
  }

  /** Asks for up to three workers to push a map output to that is written at {@code host}, best first. */
  public PlaceReply place(ShuffleKey shuffle, String host, String near, Collection<String> avoid) throws IOException {
    PlaceRequest.Builder request = PlaceRequest.newBuilder().setShuffle(shuffle).setHost(host).setNear(near);
    return call(PLACE, request.addAllAvoid(avoid).build());
  }

  /** A page of where the outputs of the maps from {@code first} to before {@code end} lie. */
  LocateReply locate(ShuffleKey shuffle, long first, long end) throws IOException {
    return call(LOCATE, LocateRequest.newBuilder().setShuffle(shuffle).setFirstMap(first).setEndMap(end).build());
  }

  /** Reports the map outputs that a reader could not get to the master. */
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

    /** Blocks until nothing of it is under way; the answer, null if there is none. */
    B settle();
  }

  private final class SentCall<A extends MessageLite, B extends MessageLite> implements Sent<B> {
    private final MethodDescriptor<A, B> method;
    private final A request;
    private final long begun = System.nanoTime();
    private int moves;
    private Masters of;
    private int to;
    private volatile Future<B> sent;

    SentCall(MethodDescriptor<A, B> method, A request) {
      this.method = method;
      this.request = request;
      send(timeout.toNanos());
    }

    /** A master that stands still has a share of the time: one of the others may lead. */
    private void send(long left) {
      of = masters;
      long share = Math.min(left, Math.max(LONGEST_PAUSE.toNanos(), timeout.toNanos() / of.size()));
      CallOptions options = Connections.AT_ONCE.withDeadlineAfter(share, TimeUnit.NANOSECONDS);
      to = of.asked().get();
      sent = ClientCalls.futureUnaryCall(to().channel().newCall(method, options), request);
    }

    private Master to() {
      return of.at(to);
    }

    @Override
    public B await() throws IOException {
      Backoff backoff = new Backoff(FIRST_PAUSE, LONGEST_PAUSE, timeout);
      if (System.nanoTime() - begun > LONG_AGO.toNanos() && sent.isDone() && settle() == null) {
        send(timeout.toNanos());
      }
      for (int tries = 1; ; tries++) {
        try {
          return sent.get();
        } catch (InterruptedException e) {
          sent.cancel(true);
          Thread.currentThread().interrupt();
          throw (IOException) new InterruptedIOException("interrupted while calling " + to().name()).initCause(e);
        } catch (ExecutionException e) {
          goOnAfter(Status.fromThrowable(e.getCause()), Status.trailersFromThrowable(e.getCause()), backoff);
        }
        if (of == masters && tries % of.size() == 0) {
          backoff.pause("waiting for " + to().name());
        }
        to().channel().resetConnectBackoff();
        send(Math.max(1, backoff.left()));
      }
    }

    /** Returns if the request is to be sent again, from now on to the next master. */
    private void goOnAfter(Status status, Metadata trailers, Backoff backoff) throws FlightException {
      FlightException failure = FlightException.ended(to().name(), status, trailers);
      if (failure.code() == ErrorCode.WRONG_MASTER && moves++ < MOST_MOVES) {
        move(of, failure);
        return;
      }
      boolean away = failure.code() == null && failure.passing() && status.getCode() == Status.Code.UNAVAILABLE;
      boolean standsStill = failure.code() == null && status.getCode() == Status.Code.DEADLINE_EXCEEDED;
      boolean notLeading = failure.code() != null && NOT_LEADING.contains(failure.code());
      boolean closed = to().channel().isShutdown(); // by this process, which is stopping
      boolean again = !closed && (away || of.size() > 1 && (standsStill || notLeading));
      if (again || standsStill) {
        of.asked().compareAndSet(to, to + 1); // unless another call has found out
      }
      if (!again || !backoff.mayGoOn()) {
        throw failure;
      }
    }

    @Override
    public B settle() {
      try {
        return sent.get();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return null;
      } catch (ExecutionException | CancellationException e) {
        return null;
      }
    }
  }

  void shutdown() {
    met.forEach(each -> each.all().forEach(master -> master.channel().shutdownNow()));
  }

  /** @param deadline as {@code System.nanoTime()} */
  void awaitTermination(long deadline) throws InterruptedException {
    for (Masters each : met) {
      for (Master master : each.all()) {
        master.channel().awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
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
