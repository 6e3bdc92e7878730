package org.apache.spark.shuffle.flight.push;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.UnsafeByteOperations;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.local.FileIndex;
import org.apache.spark.shuffle.flight.local.FileIndexCache;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTable;
import org.apache.spark.shuffle.flight.wire.FlightAction;
import org.apache.spark.shuffle.flight.wire.FlightCalls;

/**
 * A small map output in one request, the action {@code put} (docs/protocol.md): instead of a stream that is opened,
 * filled, ended and answered. Used by one task thread.
 */
final class InlinePush implements BlockStream {
  /** Payload bytes; the protocol takes more, but these are copied oftener than those of a stream. */
  static final int LARGEST = 256 << 10;

  private static final String ACTION = "put";

  /** A try at one worker. */
  interface Try<T> {
    T at(WorkerAddress worker) throws IOException;
  }

  /** The workers that an output may go to. */
  interface Workers {
    /** Tries at one after the other. */
    Committed first(Try<Committed> put) throws IOException;
  }

  private final LocalFileAccess localFiles;
  private final PutCommand command;
  private final Workers workers;
  private final Duration connectTimeout;
  private final Duration timeout;
  private final Runnable killCheck;
  private BlockBatch batch;

  /**
   * @param timeout how long the answer may take
   * @param killCheck throws when the task was killed
   */
  InlinePush(
      LocalFileAccess localFiles, PutCommand command, Workers workers, Duration connectTimeout, Duration timeout,
      Runnable killCheck) {
    this.localFiles = localFiles;
    this.command = command;
    this.workers = workers;
    this.connectTimeout = connectTimeout;
    this.timeout = timeout;
    this.killCheck = killCheck;
  }

  /** Takes all blocks of the output, {@link #LARGEST} bytes at most, which stay as they are until {@link #commit} sends them. */
  @Override
  public void send(BlockBatch all, long backlog) {
    batch = all;
  }

  @Override
  public Committed commit(Totals totals) throws IOException {
    return workers.first(worker -> put(worker, totals));
  }

  @Override
  public void abort() {
    // Nothing was sent, or the worker has dropped what it has not committed.
  }

  private Committed put(WorkerAddress worker, Totals totals) throws IOException {
    String peer = worker.toString();
    CreditGate gate = new CreditGate(peer, killCheck);
    ClientCall<FlightAction, byte[]> call =
        localFiles.connections().channel(worker).newCall(FlightCalls.DO_ACTION_WHEN_READY, Connections.AT_ONCE);
    try {
      call.start(new Answer(peer, gate), new Metadata());
      call.request(2); // gRPC reports the end of a stream when more is asked for than comes
      call.sendMessage(new FlightAction(ACTION, request(worker, totals)));
      call.halfClose();
      if (call.isReady()) {
        gate.connected();
      }
      gate.awaitConnected(connectTimeout);
      Committed committed =
          BlockStream.checked(peer, command.getOutput(), totals, gate.awaitCommitted(timeout));
      remember(committed);
      return committed;
    } catch (IOException | RuntimeException e) {
      call.cancel("the map task gave up its output", e);
      throw e;
    }
  }

  private byte[] request(WorkerAddress worker, Totals totals) {
    BlockTable table = new BlockTable();
    batch.addRowsTo(table);
    ByteString nonce = localFiles.nonce(worker, command.getShuffle());
    org.apache.spark.shuffle.flight.proto.WholePut.Builder request =
        org.apache.spark.shuffle.flight.proto.WholePut.newBuilder()
            .setCommand(command)
            .setEnd(totals)
            .setTable(table.toByteString())
            .setPayload(UnsafeByteOperations.unsafeWrap(batch.payloadBytes()));
    if (nonce != null) {
      request.setNonce(nonce);
    }
    return request.build().toByteArray();
  }

  /** Readers in this process need not ask where it lies. */
  private void remember(Committed committed) {
    if (!committed.getPath().isEmpty() && committed.getOutput().equals(command.getOutput())) {
      try {
        Path path = Path.of(committed.getPath());
        localFiles.files()
            .add(
                command.getShuffle(), command.getOutput().getMap(),
                new FileIndexCache.Known(committed.getWorker(), path, FileIndex.of(batch)));
      } catch (InvalidPathException e) {
        return; // a path of this host is none to this JVM: readers ask, and find the same
      }
    }
  }

  /** What the worker says, on netty's thread. */
  private static final class Answer extends ClientCall.Listener<byte[]> {
    private final String peer;
    private final CreditGate gate;

    Answer(String peer, CreditGate gate) {
      this.peer = peer;
      this.gate = gate;
    }

    @Override
    public void onReady() {
      gate.connected();
    }

    @Override
    public void onMessage(byte[] result) {
      try {
        gate.committed(Committed.parseFrom(result));
      } catch (InvalidProtocolBufferException e) {
        gate.ended(FlightException.broken(peer, "malformed answer to a put", e));
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      gate.ended(
          status.isOk()
              ? FlightException.broken(peer, "ended a put without an answer", null)
              : FlightException.ended(peer, status, trailers));
    }
  }
}
