package org.apache.spark.shuffle.flight.realtime;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.MapEnd;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.apache.spark.shuffle.flight.wire.FlightIn;
import org.apache.spark.shuffle.flight.wire.PulledBatch;

/**
 * A pull of a relayed partition (docs/protocol.md, Relay). The task's thread takes block after block; gRPC's callbacks only
 * queue messages, and no more of them than the task has asked for.
 *
 * <p>Every block's checksum, every map's totals and those of the stream are checked. It ends when all maps have ended, and
 * in no other way without an error.
 */
final class RelayPull extends ClientCall.Listener<FlightIn> implements AutoCloseable {
  /** Messages (of at most about 2 MiB) that may be on the way or waiting: the credit of a pull. */
  private static final int MESSAGES_AHEAD = 3;

  /** How often a wait asks whether the task was killed. */
  private static final long KILL_CHECK_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final String peer;
  private final int partition;
  private final int maps;
  private final long timeoutNanos;
  private final Runnable killCheck;
  private final ClientCall<byte[], FlightIn> call;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Queue<FlightIn> messages = new ArrayDeque<>();
  private final Map<MapAttempt, BlockTotals> byMap = new HashMap<>();
  private final Set<Long> endedMaps = new HashSet<>();
  private final BlockTotals totals = new BlockTotals();
  private long lastHeard = System.nanoTime();
  private FlightException closed;
  private PulledBatch batch;
  private int row;
  private boolean over;

  private RelayPull(
      ManagedChannel channel, String peer, int partition, int maps, Duration timeout, Runnable killCheck) {
    this.peer = peer;
    this.partition = partition;
    this.maps = maps;
    this.timeoutNanos = timeout.toNanos();
    this.killCheck = killCheck;
    this.call = channel.newCall(FlightCalls.DO_GET, CallOptions.DEFAULT);
  }

  /**
   * Opens a stream, without waiting for it.
   *
   * @param maps how many maps the shuffle has
   * @param timeout how long nothing may arrive from the worker, which sends something every few seconds
   * @param killCheck throws when the task was killed
   */
  static RelayPull open(
      ManagedChannel channel, String peer, GetTicket ticket, int maps, Duration timeout, Runnable killCheck) {
    RelayPull pull = new RelayPull(channel, peer, ticket.getFirstPartition(), maps, timeout, killCheck);
    pull.call.start(pull, new Metadata());
    pull.call.request(MESSAGES_AHEAD);
    pull.call.sendMessage(ticket.toByteArray());
    pull.call.halfClose();
    return pull;
  }

  /** Goes to the next block; false when all maps have ended. The block before stays as it is. */
  boolean next() throws IOException {
    row++;
    while (!over && (batch == null || row >= batch.rows())) {
      FlightIn message = take();
      batch = PulledBatch.of(message);
      row = 0;
      if (message.metadata().length > 0) {
        hear(GetControl.parseFrom(message.metadata()));
      }
    }
    if (over) {
      return false;
    }
    if (!batch.intact(row)) {
      throw FlightException.found(peer, ErrorCode.BLOCK_CORRUPT, "a relayed block of " + name(batch.map(row)) + " arrived damaged");
    }
    if (batch.partition(row) != partition || batch.rawLength(row) != batch.length(row)) {
      throw FlightException.broken(
          peer, "sent a block of partition " + batch.partition(row) + " (" + batch.length(row) + " bytes of "
              + batch.rawLength(row) + ") where uncompressed ones of partition " + partition + " were asked for", null);
    }
    MapAttempt output = MapAttempt.newBuilder().setMap(batch.map(row)).setAttempt(batch.attempt(row)).build();
    if (endedMaps.contains(output.getMap())) {
      throw FlightException.broken(peer, "sent a block of " + name(output.getMap()) + " after its end", null);
    }
    add(byMap.computeIfAbsent(output, key -> new BlockTotals()));
    add(totals);
    return true;
  }

  /** The array that the block lies in. */
  byte[] body() {
    return batch.body().array();
  }

  int offset() {
    return batch.offset(row);
  }

  int length() {
    return batch.length(row);
  }

  private void add(BlockTotals sum) {
    sum.add(batch.partition(row), batch.checksum(row), batch.length(row), batch.rawLength(row), batch.records(row));
  }

  private static String name(long map) {
    return "map " + map;
  }

  private void hear(GetControl control) throws IOException {
    if (control.hasError()) {
      throw FlightException.reported(peer, control.getError());
    }
    if (control.hasMapEnd()) {
      end(control.getMapEnd());
    }
    if (control.hasEnd()) {
      if (endedMaps.size() != maps || !control.getEnd().equals(totals.toMessage())) {
        throw FlightException.broken(
            peer, "ended the stream with " + control.getEnd() + "after " + endedMaps.size() + " of " + maps
                + " maps; received was " + totals.toMessage(), null);
      }
      over = true;
    }
  }

  private void end(MapEnd end) throws IOException {
    BlockTotals received = byMap.remove(end.getOutput());
    if (!end.getTotals().equals((received == null ? new BlockTotals() : received).toMessage())
        || !endedMaps.add(end.getOutput().getMap())) {
      throw FlightException.found(
          peer, ErrorCode.COMMIT_MISMATCH,
          name(end.getOutput().getMap()) + " attempt " + end.getOutput().getAttempt() + " ended with " + end.getTotals()
              + "; that is not what came");
    }
    if (byMap.keySet().stream().anyMatch(other -> other.getMap() == end.getOutput().getMap())) {
      throw FlightException.broken(peer, "sent blocks of two attempts of " + name(end.getOutput().getMap()), null);
    }
  }

  private FlightIn take() throws IOException {
    try {
      lock.lockInterruptibly();
      try {
        while (messages.isEmpty()) {
          if (closed != null) {
            throw closed;
          }
          killCheck.run();
          long left = timeoutNanos - (System.nanoTime() - lastHeard);
          if (left <= 0) {
            throw FlightException.broken(
                peer, "nothing heard for " + TimeUnit.NANOSECONDS.toSeconds(timeoutNanos) + " s by a pull", null);
          }
          changed.awaitNanos(Math.min(left, KILL_CHECK_NANOS));
        }
        lastHeard = System.nanoTime();
        call.request(1);
        return messages.remove();
      } finally {
        lock.unlock();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while waiting for rows from " + peer);
    }
  }

  @Override
  public void onMessage(FlightIn message) {
    lock.lock();
    try {
      messages.add(message);
      lastHeard = System.nanoTime();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    lock.lock();
    try {
      closed =
          status.isOk()
              ? FlightException.broken(peer, "the pull ended without its totals", null)
              : FlightException.ended(peer, status, trailers);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Ends the stream if it has not come to its end. */
  @Override
  public void close() {
    if (!over) {
      call.cancel("the reduce task is over", null);
    }
  }
}
