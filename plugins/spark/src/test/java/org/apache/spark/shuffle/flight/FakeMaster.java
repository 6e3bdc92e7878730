package org.apache.spark.shuffle.flight;

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
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.spark.shuffle.flight.client.Protocol;
import org.apache.spark.shuffle.flight.client.RawMarshaller;
import org.apache.spark.shuffle.flight.proto.Error;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.HeartbeatReply;
import org.apache.spark.shuffle.flight.proto.HelloReply;
import org.apache.spark.shuffle.flight.proto.HelloRequest;
import org.apache.spark.shuffle.flight.proto.RegisterAppReply;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleReply;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleRequest;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.UnregisterAppReply;
import org.apache.spark.shuffle.flight.proto.UnregisterShuffleReply;
import org.apache.spark.shuffle.flight.proto.UnregisterShuffleRequest;
import org.apache.spark.shuffle.flight.proto.Worker;

/** A control endpoint that does what a test wants: for what no real master can be made to do at the right moment. */
final class FakeMaster implements AutoCloseable {
  private static final String SERVICE = "flight_shuffle.v1.ShuffleControl";
  private static final Metadata.Key<byte[]> ERROR =
      Metadata.Key.of("flight-shuffle-error-bin", Metadata.BINARY_BYTE_MARSHALLER);
  private static final Worker WORKER = Worker.newBuilder().setId("w1").setHost("127.0.0.1").setPort(1).build();
  private static final List<String> CALLS =
      List.of("Hello", "RegisterApp", "Heartbeat", "RegisterShuffle", "UnregisterShuffle", "UnregisterApp");

  /** What a call meets instead of its answer. */
  enum Fault {
    SILENCE,
    NO_WORKER,
    UNKNOWN_APP,
    APP_EXPIRED,
    SHUTTING_DOWN
  }

  private final int protocol;
  private final Server server;
  private final Map<String, Queue<Fault>> faults = new ConcurrentHashMap<>();
  private final BlockingQueue<String> calls = new LinkedBlockingQueue<>();
  private final Map<String, Queue<byte[]>> requests = new ConcurrentHashMap<>();
  private final Map<Long, Long> generations = new ConcurrentHashMap<>(); // of the shuffles that are registered
  private long generation = 1000;
  private volatile String registry = "";
  private volatile String elsewhere = "";

  FakeMaster() throws IOException {
    this(Protocol.NEWEST);
  }

  /** @param protocol the only version that it speaks, if it is 1, and else the newest */
  FakeMaster(int protocol) throws IOException {
    this.protocol = protocol;
    ServerServiceDefinition.Builder service = ServerServiceDefinition.builder(SERVICE);
    for (String name : CALLS) {
      faults.put(name, new ConcurrentLinkedQueue<>());
      requests.put(name, new ConcurrentLinkedQueue<>());
      service.addMethod(
          MethodDescriptor.newBuilder(new RawMarshaller(), new RawMarshaller())
              .setType(MethodType.UNARY)
              .setFullMethodName(MethodDescriptor.generateFullMethodName(SERVICE, name))
              .build(),
          answering(name));
    }
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
            .directExecutor() // so that calls of one connection are handled in their order
            .addService(service.build())
            .build()
            .start();
  }

  private synchronized MessageLite reply(String name, byte[] request) throws IOException {
    return switch (name) {
      case "Hello" -> HelloReply.newBuilder().setProtocol(protocol).setRegistry(registry).addWorkers(WORKER).build();
      case "RegisterApp" -> RegisterAppReply.newBuilder().setHeartbeatSeconds(1).build();
      case "Heartbeat" -> HeartbeatReply.getDefaultInstance();
      case "RegisterShuffle" -> {
        long shuffle = RegisterShuffleRequest.parseFrom(request).getShuffle().getShuffle();
        long its = protocol == 1 ? 0 : generations.computeIfAbsent(shuffle, number -> ++generation);
        yield RegisterShuffleReply.newBuilder().addWorkers(WORKER).setGeneration(its).build();
      }
      case "UnregisterShuffle" -> {
        ShuffleKey shuffle = UnregisterShuffleRequest.parseFrom(request).getShuffle();
        generations.remove(shuffle.getShuffle(), shuffle.getGeneration());
        yield UnregisterShuffleReply.getDefaultInstance();
      }
      default -> UnregisterAppReply.getDefaultInstance();
    };
  }

  /** It leads the registry of this name. */
  FakeMaster of(String name) {
    registry = name;
    return this;
  }

  /** All applications belong to another registry, whose masters are these. */
  FakeMaster refuseTo(String masters) {
    elsewhere = masters;
    return this;
  }

  /** The application and its shuffles are gone. */
  synchronized void drop() {
    generations.clear();
    meet("Heartbeat", Fault.APP_EXPIRED);
  }

  /** The requests of this name that have come. */
  Queue<byte[]> requests(String name) {
    return requests.get(name);
  }

  String address() {
    return InetAddress.getLoopbackAddress().getHostAddress() + ":" + server.getPort();
  }

  /** Of the next calls of this name, each meets one of these; those that come then are answered. */
  void meet(String name, Fault... all) {
    faults.get(name).addAll(List.of(all));
  }

  /** The names of all calls, as they come; "NAME given up" when the client does not wait for an answer any longer. */
  BlockingQueue<String> calls() {
    return calls;
  }

  private ServerCallHandler<byte[], byte[]> answering(String name) {
    return (call, headers) -> {
      call.request(1);
      return new ServerCall.Listener<>() {
        @Override
        public void onMessage(byte[] message) {
          Fault fault = faults.get(name).poll();
          requests.get(name).add(message);
          calls.add(name);
          if (fault == Fault.SILENCE) {
            return;
          }
          try {
            ErrorCode refusal = refusal(name, message, fault);
            if (refusal != null) {
              Metadata trailers = new Metadata();
              trailers.put(ERROR, Error.newBuilder().setCode(refusal).setMasters(elsewhere).build().toByteArray());
              call.close(Status.NOT_FOUND, trailers);
              return;
            }
            MessageLite reply =
                fault == Fault.NO_WORKER ? RegisterShuffleReply.getDefaultInstance() : reply(name, message);
            call.sendHeaders(new Metadata());
            call.sendMessage(reply.toByteArray());
            call.close(Status.OK, new Metadata());
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        }

        @Override
        public void onCancel() {
          calls.add(name + " given up");
        }
      };
    };
  }

  private ErrorCode refusal(String name, byte[] request, Fault fault) throws IOException {
    if (!elsewhere.isEmpty()) {
      return ErrorCode.WRONG_MASTER;
    }
    if (fault != null && fault != Fault.NO_WORKER) {
      return ErrorCode.valueOf(fault.name());
    }
    boolean mismatch = protocol == 1 && name.equals("Hello") && HelloRequest.parseFrom(request).getProtocol() != 1;
    return mismatch ? ErrorCode.PROTOCOL_MISMATCH : null;
  }

  @Override
  public void close() {
    server.shutdownNow();
  }
}
