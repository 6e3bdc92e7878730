package org.apache.spark.shuffle.flight.driver;

import io.grpc.CallOptions;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.apache.spark.shuffle.flight.wire.FlightIn;

/**
 * Asks a worker which map outputs it has no more: a pull of no partition at all. The worker opens the file of each, reads
 * none of its blocks, and reports those that it cannot serve as it does in any pull.
 */
final class LossCheck {
  /** So that an answer does not take the worker long, whatever the number of maps. */
  private static final int AT_ONCE = 1000;

  private LossCheck() {}

  /**
   * Blocks.
   *
   * @param maps whose outputs lay at {@code worker}
   * @param timeout for a thousand of them
   * @return those of {@code maps} whose outputs are lost
   */
  static Set<Long> lost(
      Connections connections, WorkerAddress worker, ShuffleKey shuffle, Set<Long> maps, Duration timeout)
      throws IOException {
    Set<Long> lost = new HashSet<>();
    List<Long> all = List.copyOf(maps);
    for (int start = 0; start < all.size(); start += AT_ONCE) {
      List<Long> some = all.subList(start, Math.min(start + AT_ONCE, all.size()));
      lost.addAll(ask(connections, worker, shuffle, some, timeout));
    }
    lost.retainAll(maps);
    return lost;
  }

  private static List<Long> ask(
      Connections connections, WorkerAddress worker, ShuffleKey shuffle, List<Long> maps, Duration timeout)
      throws IOException {
    GetTicket.Builder ticket = GetTicket.newBuilder().setShuffle(shuffle);
    maps.forEach(map -> ticket.addRanges(new WantedBlock("", map, 0, 0).toMessage()));
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(timeout.toNanos(), TimeUnit.NANOSECONDS);
    try {
      Iterator<FlightIn> answer =
          ClientCalls.blockingServerStreamingCall(
              connections.channel(worker), FlightCalls.DO_GET, options, ticket.build().toByteArray());
      return read(worker, answer);
    } catch (StatusRuntimeException e) {
      throw FlightException.ended(worker.toString(), e.getStatus(), e.getTrailers());
    }
  }

  /** All of the answer, even if it is none: a stream that is read to its end leaves nothing behind. */
  private static List<Long> read(WorkerAddress worker, Iterator<FlightIn> answer) throws IOException {
    List<Long> lost = new ArrayList<>();
    boolean ended = false;
    while (answer.hasNext()) {
      GetControl control = GetControl.parseFrom(answer.next().metadata());
      ended |= control.hasEnd();
      if (control.hasError() && control.getError().getCode() == ErrorCode.MAP_OUTPUT_LOST) {
        lost.add(control.getError().getOutput().getMap());
      }
    }
    if (!ended) {
      throw FlightException.broken(worker.toString(), "the answer about lost map outputs ended early", null);
    }
    return lost;
  }
}
