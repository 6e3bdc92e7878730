package org.apache.spark.shuffle.flight.fetch;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.WholeGet;
import org.apache.spark.shuffle.flight.wire.FlightAction;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.apache.spark.shuffle.flight.wire.WholeBlocks;

/**
 * A small pull in one answer, the action {@code get} (docs/protocol.md): no stream, whose messages each pass several
 * threads. When the worker wants a stream for it, it says so, and {@code stream} is started instead. Its callbacks run
 * on netty's thread: the sinks must not block.
 */
final class InlineFetch extends PullCall<FlightAction, byte[]> {
  /** Payload bytes; the protocol takes more, but these are copied oftener than those of a stream, and lie on the heap. */
  static final int LARGEST = 256 << 10;

  private static final String ACTION = "get";

  private final Runnable stream;
  private boolean wantsStream;

  /** @param stream pulls the same another way; called instead of the listener */
  InlineFetch(
      ManagedChannel channel, String peer, BlockAssembler blocks, Listener listener, Runnable stream, Duration timeout) {
    super(
        peer, blocks, listener,
        channel.newCall(
            FlightCalls.DO_ACTION, Connections.AT_ONCE.withDeadlineAfter(timeout.toNanos(), TimeUnit.NANOSECONDS)));
    this.stream = stream;
  }

  @Override
  void start(GetTicket ticket) {
    call().start(this, new Metadata());
    call().request(2); // gRPC reports the end of a stream when more is asked for than comes
    call().sendMessage(new FlightAction(ACTION, ticket.toByteArray()));
    call().halfClose();
  }

  @Override
  void take(byte[] result) throws IOException {
    WholeGet answer = WholeBlocks.parse(result);
    wantsStream = answer.getStream();
    if (wantsStream) {
      return;
    }
    WholeBlocks served = WholeBlocks.of(answer);
    ByteBuf body = served.body();
    try {
      blocks().accept(served);
    } finally {
      body.release();
    }
    blocks().accept(GetControl.newBuilder().setEnd(answer.getEnd()).build());
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    if (wantsStream && status.isOk() && !broken()) {
      stream.run();
    } else {
      super.onClose(status, trailers);
    }
  }
}
