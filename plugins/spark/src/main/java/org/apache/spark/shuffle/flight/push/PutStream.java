package org.apache.spark.shuffle.flight.push;

import com.google.protobuf.InvalidProtocolBufferException;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.Protocol;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PartitionEnd;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.PutControl;
import org.apache.spark.shuffle.flight.proto.PutReply;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.apache.spark.shuffle.flight.wire.FlightOut;

/**
 * One push: the {@code DoPut} stream of one map output (docs/protocol.md, Push). Used by one task thread, but for
 * {@link #keepAlive}.
 *
 * <p>{@link #send} blocks for credit; when it returns, the batch's payload array may be filled again, because gRPC frames
 * a message on the thread that sends it once the stream has its connection (which {@link #open} waits for).
 */
public final class PutStream implements BlockStream {
  private final ClientCall<FlightOut, byte[]> call;
  private final CreditGate gate;
  private final Duration timeout;
  private final String peer;
  private final MapAttempt output;
  private boolean halfClosed;

  private PutStream(
      ClientCall<FlightOut, byte[]> call, CreditGate gate, Duration timeout, String peer, MapAttempt output) {
    this.call = call;
    this.gate = gate;
    this.timeout = timeout;
    this.peer = peer;
    this.output = output;
  }

  /**
   * Opens a stream and waits for its connection.
   *
   * @param timeout how long a wait may last in which nothing arrives from the worker
   * @param killCheck throws when the task was killed
   */
  public static PutStream open(
      ManagedChannel channel, WorkerAddress worker, PutCommand.Builder command, Duration connectTimeout, Duration timeout,
      Runnable killCheck) throws IOException {
    CreditGate gate = new CreditGate(worker.toString(), killCheck);
    ClientCall<FlightOut, byte[]> call = channel.newCall(FlightCalls.DO_PUT, Connections.AT_ONCE);
    PutStream stream = new PutStream(call, gate, timeout, worker.toString(), command.getOutput());
    call.start(stream.new Replies(), new Metadata());
    call.request(1);
    call.sendMessage(FlightOut.putSchema(command.setProtocol(Protocol.of(command.getShuffle())).build().toByteArray()));
    if (call.isReady()) {
      gate.connected();
    }
    try {
      gate.awaitConnected(connectTimeout);
    } catch (IOException | RuntimeException e) {
      stream.cancel(e);
      throw e;
    }
    return stream;
  }

  /** Sends as soon as there is credit. */
  @Override
  public void send(BlockBatch batch, long backlog) throws IOException {
    if (!gate.admits(batch.size())) {
      say(FlightOut.control(backlog(batch.size() + backlog)));
    }
    gate.take(batch.size(), timeout);
    say(FlightOut.putBatch(batch, backlog(backlog)));
  }

  @Override
  public long creditWaitNanos() {
    return gate.creditWaitNanos();
  }

  /** Whether there is credit for {@code bytes}. */
  public boolean admits(long bytes) {
    return gate.admits(bytes);
  }

  /** Whether {@code bytes} that are sent now wait: for credit, or behind others that are not on the wire. */
  public boolean wouldWait(long bytes) {
    return !gate.admits(bytes) || !call.isReady();
  }

  /** @throws IOException what the worker has ended the stream with, if it has */
  public void check() throws IOException {
    gate.check();
  }

  /**
   * Lets the worker know that this side is alive. Any thread may call it, also while another waits in {@link #send}.
   *
   * @throws IOException what the worker has ended the stream with, if it has
   */
  public void keepAlive() throws IOException {
    gate.check();
    say(FlightOut.control(backlog(1))); // Arrow takes a message with nothing in it for the end
  }

  /** A call is not safe for several threads. */
  private synchronized void say(FlightOut message) {
    if (!halfClosed) {
      call.sendMessage(message);
    }
  }

  private static byte[] backlog(long bytes) {
    return PutControl.newBuilder().setBacklog(bytes).build().toByteArray();
  }

  @Override
  public Committed commit(Totals totals) throws IOException {
    end(totals, List.of());
    return awaitCommitted(totals);
  }

  /** States that this was all, with its part in each partition if the output is relayed. Does not wait. */
  public void end(Totals totals, List<PartitionEnd> ends) {
    finish(PutControl.newBuilder().setEnd(totals).addAllEnds(ends).setCommit(true).build());
  }

  /** After {@link #end} of a relayed output: returns when readers have all of it, and of no other attempt. */
  public void awaitRelayed(Totals totals) throws IOException {
    Committed answer = awaitCommitted(totals);
    if (!answer.getOutput().equals(output)) {
      throw FlightException.found(
          peer, ErrorCode.ATTEMPT_SUPERSEDED,
          "of map " + output.getMap() + " attempt " + answer.getOutput().getAttempt() + " was relayed");
    }
  }

  private Committed awaitCommitted(Totals totals) throws IOException {
    return BlockStream.checked(peer, output, totals, gate.awaitCommitted(timeout));
  }

  @Override
  public synchronized void abort() {
    if (halfClosed) {
      cancel(null);
    } else {
      finish(PutControl.newBuilder().setAbort(true).build());
    }
  }

  /** Breaks the stream off: the worker drops the attempt when nobody resumes it. */
  public synchronized void cancel(Throwable cause) {
    halfClosed = true;
    call.cancel("the map task gave up its output", cause);
  }

  private synchronized void finish(PutControl last) {
    if (halfClosed) {
      return; // it was broken off: a thread that waits for an answer gets the reason
    }
    halfClosed = true;
    call.sendMessage(FlightOut.control(last.toByteArray()));
    call.halfClose();
  }

  /** What the worker says, on netty's thread. */
  private final class Replies extends ClientCall.Listener<byte[]> {
    @Override
    public void onReady() {
      gate.connected();
    }

    @Override
    public void onMessage(byte[] metadata) {
      try {
        PutReply reply = PutReply.parseFrom(metadata);
        if (reply.hasError()) {
          gate.ended(FlightException.reported(peer, reply.getError()));
        } else if (reply.hasCommitted()) {
          gate.committed(reply.getCommitted());
        } else {
          gate.granted(reply.getGranted());
        }
        call.request(1);
      } catch (InvalidProtocolBufferException e) {
        gate.ended(FlightException.broken(peer, "malformed reply to a push", e));
        cancel(e);
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      gate.ended(
          status.isOk()
              ? FlightException.broken(peer, "ended the push without an answer", null)
              : FlightException.ended(peer, status, trailers));
    }
  }
}
