package org.apache.spark.shuffle.flight.fetch;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.apache.spark.shuffle.flight.wire.FlightIn;
import org.apache.spark.shuffle.flight.wire.PulledBatch;

/** One {@code DoGet} stream. */
final class Pull extends PullCall<byte[], FlightIn> {
  /** Messages (of about 2 MiB) that may be on the way or waiting: the credit of a pull. */
  private static final int MESSAGES_AHEAD = 3;

  private final long timeoutNanos;
  private final ScheduledExecutorService timer;
  private volatile long lastHeard = System.nanoTime();
  private volatile ScheduledFuture<?> watchdog;

  Pull(
      ManagedChannel channel, String peer, BlockAssembler blocks, Listener listener, Duration timeout,
      ScheduledExecutorService timer) {
    super(peer, blocks, listener, channel.newCall(FlightCalls.DO_GET_POOLED, CallOptions.DEFAULT));
    this.timeoutNanos = timeout.toNanos();
    this.timer = timer;
  }

  @Override
  void start(GetTicket ticket) {
    watch();
    call().start(this, new Metadata());
    call().request(MESSAGES_AHEAD);
    call().sendMessage(ticket.toByteArray());
    call().halfClose();
  }

  private void watch() {
    long silent = System.nanoTime() - lastHeard;
    if (silent >= timeoutNanos) {
      cancel("nothing heard for " + TimeUnit.NANOSECONDS.toSeconds(timeoutNanos) + " s");
    } else {
      watchdog =
          PeriodicTask.later(
              timer, Duration.ofNanos(timeoutNanos - silent), "the watch over a pull", this::watch,
              why -> cancel("it cannot be watched: " + why));
    }
  }

  @Override
  public void onMessage(FlightIn received) {
    lastHeard = System.nanoTime();
    try (FlightIn message = received) {
      super.onMessage(message);
    }
  }

  @Override
  void take(FlightIn message) throws IOException {
    PulledBatch batch = PulledBatch.of(message);
    if (batch != null) {
      blocks().accept(batch);
    }
    if (message.metadata().length > 0) {
      blocks().accept(GetControl.parseFrom(message.metadata()));
    }
    call().request(1);
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    watchdog.cancel(false);
    super.onClose(status, trailers);
  }
}
