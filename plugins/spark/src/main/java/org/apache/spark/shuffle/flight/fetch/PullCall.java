package org.apache.spark.shuffle.flight.fetch;

import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.GetTicket;

/**
 * A call by which blocks are pulled from a worker. Its callbacks run one after the other; exactly one of the listener's
 * methods is called, once, when it is over.
 *
 * @param <Q> what is sent
 * @param <A> what is received
 */
abstract class PullCall<Q, A> extends ClientCall.Listener<A> {
  /** Who hears how it went, on the thread of the call's callbacks. */
  interface Listener {
    /** All blocks are settled. */
    void pulled();

    /** Those blocks are not settled that the assembler has not given out. */
    void failed(FlightException failure);
  }

  private final String peer;
  private final BlockAssembler blocks;
  private final Listener listener;
  private final ClientCall<Q, A> call;
  private FlightException failure;

  PullCall(String peer, BlockAssembler blocks, Listener listener, ClientCall<Q, A> call) {
    this.peer = peer;
    this.blocks = blocks;
    this.listener = listener;
    this.call = call;
  }

  final ClientCall<Q, A> call() {
    return call;
  }

  final BlockAssembler blocks() {
    return blocks;
  }

  /** Whether a message has failed it: the rest does not count. */
  final boolean broken() {
    return failure != null;
  }

  /** Called once; does not block. */
  abstract void start(GetTicket ticket);

  /** Gives what a message holds to the assembler. */
  abstract void take(A message) throws IOException;

  /** Ends the call; the listener still receives the failure. */
  final void cancel(String why) {
    call.cancel(why, null);
  }

  @Override
  public void onMessage(A message) {
    if (broken()) {
      return;
    }
    try {
      take(message);
    } catch (IOException e) {
      failure = e instanceof FlightException known ? known : FlightException.broken(peer, e.toString(), e);
      call.cancel(e.getMessage(), e);
    }
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    if (failure == null && !blocks.ended()) {
      failure =
          status.isOk()
              ? FlightException.broken(peer, "the pull ended without its totals", null)
              : FlightException.ended(peer, status, trailers);
    }
    if (failure == null) {
      listener.pulled();
    } else {
      try {
        blocks.discard();
      } finally {
        listener.failed(failure);
      }
    }
  }
}
