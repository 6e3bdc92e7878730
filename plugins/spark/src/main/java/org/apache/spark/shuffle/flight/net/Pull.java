package org.apache.spark.shuffle.flight.net;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.apache.spark.shuffle.flight.wire.FlightIn;
import org.apache.spark.shuffle.flight.wire.PulledBatch;

/**
 * One {@code DoGet} stream. Its callbacks run one after the other on the connections' pool; exactly one of the listener's
 * methods is called, once, when it is over.
 */
final class Pull extends ClientCall.Listener<FlightIn> implements PullCall {
  /** Messages (of about 2 MiB) that may be on the way or waiting: the credit of a pull. */
  private static final int MESSAGES_AHEAD = 3;

  private final String peer;
  private final BlockAssembler blocks;
  private final Listener listener;
  private final ClientCall<byte[], FlightIn> call;
  private final long timeoutNanos;
  private final ScheduledExecutorService timer;
  private volatile long lastHeard = System.nanoTime();
  private volatile ScheduledFuture<?> watchdog;
  private FlightException failure;

  Pull(
      ManagedChannel channel, String peer, BlockAssembler blocks, Listener listener, Duration timeout,
      ScheduledExecutorService timer) {
    this.peer = peer;
    this.blocks = blocks;
    this.listener = listener;
    this.call = channel.newCall(FlightCalls.DO_GET_POOLED, CallOptions.DEFAULT);
    this.timeoutNanos = timeout.toNanos();
    this.timer = timer;
  }

  @Override
  public void start(GetTicket ticket) {
    watch();
    call.start(this, new Metadata());
    call.request(MESSAGES_AHEAD);
    call.sendMessage(ticket.toByteArray());
    call.halfClose();
  }

  @Override
  public void cancel(String why) {
    call.cancel(why, null);
  }

  private void watch() {
    long silent = System.nanoTime() - lastHeard;
    if (silent >= timeoutNanos) {
      cancel("nothing heard for " + TimeUnit.NANOSECONDS.toSeconds(timeoutNanos) + " s");
    } else {
      watchdog = timer.schedule(this::watch, timeoutNanos - silent, TimeUnit.NANOSECONDS);
    }
  }

  @Override
  public void onMessage(FlightIn received) {
    lastHeard = System.nanoTime();
    try (FlightIn message = received) {
      if (failure != null) {
        return;
      }
      PulledBatch batch = PulledBatch.of(message);
      if (batch != null) {
        blocks.accept(batch);
      }
      if (message.metadata().length > 0) {
        blocks.accept(GetControl.parseFrom(message.metadata()));
      }
      call.request(1);
    } catch (IOException e) {
      failure = e instanceof FlightException known ? known : FlightException.broken(peer, e.toString(), e);
      call.cancel(e.getMessage(), e);
    }
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    watchdog.cancel(false);
    if (failure == null && !blocks.ended()) {
      failure =
          status.isOk()
              ? FlightException.broken(peer, "the pull ended without its totals", null)
              : FlightException.ended(peer, status, trailers);
    }
    if (failure == null) {
      listener.pulled();
    } else {
      blocks.discard();
      listener.failed(failure);
    }
  }
}
