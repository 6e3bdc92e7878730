package org.apache.spark.shuffle.flight.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class PulledBatchTest {
  private static final byte[] HELLO = {1, 2, 3, 4, 5};
  private static final byte[] ONE = {9};

  @Test
  void readsBlocksInPlace() throws IOException {
    PulledBatch batch =
        PulledBatch.of(Pulls.message(List.of(new Pulls.Served(70_000_000_000L, 2, HELLO), new Pulls.Served(8, 3, ONE))));
    assertEquals(2, batch.rows());
    assertEquals(70_000_000_000L, batch.map(0));
    assertEquals(0, batch.attempt(0));
    assertEquals(3, batch.partition(1));
    assertEquals(5, batch.rawLength(0));
    assertArrayEquals(HELLO, ByteBufUtil.getBytes(batch.body(), batch.offset(0), batch.length(0)));
    assertArrayEquals(ONE, ByteBufUtil.getBytes(batch.body(), batch.offset(1), batch.length(1)));
    assertTrue(batch.intact(0));
  }

  @Test
  void wrongChecksumIsNoticed() throws IOException {
    assertFalse(PulledBatch.of(Pulls.message(List.of(new Pulls.Served(1, 1, HELLO, 5)))).intact(0));
  }

  @Test
  void schemaAndMetadataOnlyHoldNoBatch() throws IOException {
    byte[] schema = ArrowColumns.schemaHeader(ArrowColumns.GET);
    assertNull(PulledBatch.of(new FlightIn(schema, new byte[0], Unpooled.EMPTY_BUFFER)));
    assertNull(PulledBatch.of(new FlightIn(new byte[0], new byte[] {1}, Unpooled.EMPTY_BUFFER)));
  }

  @Test
  void batchWithoutRowsIsEmpty() throws IOException {
    assertEquals(0, PulledBatch.of(Pulls.message(List.of())).rows());
  }

  @Test
  void otherColumnsAreRefused() {
    byte[] header = ArrowColumns.batchHeader(1, 2, new long[12], 0);
    assertThrows(IOException.class, () -> PulledBatch.of(new FlightIn(header, new byte[0], Unpooled.EMPTY_BUFFER)));
  }

  @Test
  void bodyCutShortIsRefused() {
    FlightIn whole = Pulls.message(List.of(new Pulls.Served(1, 1, HELLO), new Pulls.Served(1, 2, ONE)));
    for (int length = 0; length < whole.body().readableBytes(); length++) {
      ByteBuf cut = whole.body().copy(0, length);
      assertThrows(IOException.class, () -> PulledBatch.of(new FlightIn(whole.header(), new byte[0], cut)));
    }
  }

  /** Whatever a peer sends: an IOException or a batch whose payloads lie in the body, never another exception. */
  @Test
  void damagedMessagesNeverReadOutsideTheBody() {
    FlightIn whole = Pulls.message(List.of(new Pulls.Served(1, 1, HELLO), new Pulls.Served(1, 2, ONE)));
    Random random = new Random(11);
    for (int run = 0; run < 5_000; run++) {
      byte[] header = whole.header().clone();
      byte[] body = ByteBufUtil.getBytes(whole.body());
      for (int change = 0; change < 3; change++) {
        byte[] damaged = random.nextBoolean() ? header : body;
        damaged[random.nextInt(damaged.length)] = (byte) random.nextInt();
      }
      try {
        PulledBatch batch = PulledBatch.of(new FlightIn(header, new byte[0], Unpooled.wrappedBuffer(body)));
        for (int row = 0; batch != null && row < batch.rows(); row++) {
          batch.intact(row);
        }
      } catch (IOException expected) {
        assertTrue(expected.getMessage() != null);
      }
    }
  }
}
