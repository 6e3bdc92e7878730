package org.apache.spark.shuffle.flight.realtime;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.MapEnd;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.shuffle.flight.wire.FlightIn;
import org.apache.spark.shuffle.flight.wire.Pulls;
import org.apache.spark.shuffle.flight.wire.Pulls.Served;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class RelayPullTest {
  private static final int PARTITION = 7;
  private static final byte[] ROWS = {1, 2, 3};

  private static FlightIn control(GetControl control) {
    return new FlightIn(new byte[0], control.toByteArray(), Unpooled.EMPTY_BUFFER);
  }

  /** A worker that serves {@code block} as all there is of one map. */
  private static FakeWorker serving(Served block) throws IOException {
    BlockTotals totals = new BlockTotals();
    totals.add(block.partition(), block.checksum(), block.payload().length, block.payload().length, 0);
    Totals end = totals.toMessage();
    MapEnd mapEnd = MapEnd.newBuilder().setOutput(MapAttempt.newBuilder().setMap(block.map())).setTotals(end).build();
    List<byte[]> messages =
        List.of(
            FakeWorker.data(Pulls.message(List.of(block))),
            FakeWorker.data(control(GetControl.newBuilder().setMapEnd(mapEnd).build())),
            FakeWorker.data(control(GetControl.newBuilder().setEnd(end).build())));
    return new FakeWorker(call -> messages);
  }

  private static RelayPull open(FakeWorker worker) {
    GetTicket ticket = GetTicket.newBuilder().setFirstPartition(PARTITION).setEndPartition(PARTITION + 1).build();
    return RelayPull.open(
        worker.connections().channel(worker.address()), "worker w", ticket, 1, Duration.ofSeconds(60), () -> { });
  }

  @Test
  void blocksComeUntilAllMapsHaveEnded() throws Exception {
    try (FakeWorker worker = serving(new Served(0, PARTITION, ROWS)); RelayPull pull = open(worker)) {
      assertTrue(pull.next());
      assertArrayEquals(ROWS, Arrays.copyOfRange(pull.body(), pull.offset(), pull.offset() + pull.length()));
      assertFalse(pull.next());
    }
  }

  @Test
  void blockOfAnotherPartitionIsRefused() throws Exception {
    try (FakeWorker worker = serving(new Served(0, PARTITION + 1, ROWS)); RelayPull pull = open(worker)) {
      FlightException failure = assertThrows(FlightException.class, pull::next);
      assertTrue(failure.getMessage().contains("partition " + (PARTITION + 1)), failure.getMessage());
    }
  }
}
