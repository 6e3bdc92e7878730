package org.apache.spark.shuffle.flight.realtime;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.push.PutStream;
import org.apache.spark.shuffle.flight.rows.RowBlockReader;
import org.apache.spark.shuffle.flight.rows.RowFormat;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class RelayPushTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int PARTITIONS = 2;
  private static final int TAIL = 1000;
  private static final int LETTERS = 20; // more than are written as half bytes
  private static final int INITIAL_CREDIT = 1 << 20;
  private static final SparkConf SPARK = new SparkConf(false);
  private static final FlightConf CONF =
      FlightConf.parse(
          new SparkConf(false).set(FlightConf.SERVER.key(), "h:1").set(FlightConf.FLUSH_TIMEOUT.key(), "1h"));

  /** A row of one field, in which much repeats, but not by column. */
  private static UnsafeRow row() {
    ByteBuffer bytes = ByteBuffer.allocate(16 + TAIL).order(ByteOrder.nativeOrder());
    bytes.putLong(0).putLong(16L << 32 | TAIL);
    for (int i = 0; i < TAIL; i++) {
      bytes.put((byte) ('a' + i % LETTERS));
    }
    UnsafeRow row = new UnsafeRow(1);
    row.pointTo(bytes.array(), Platform.BYTE_ARRAY_OFFSET, bytes.capacity());
    return row;
  }

  private static RelayPush open(FakeWorker worker) throws IOException {
    PutStream stream =
        PutStream.open(
            worker.connections().channel(worker.address()), worker.address(), PutCommand.newBuilder().setRelay(true), LONG,
            LONG, () -> { });
    RelayBlocks blocks = new RelayBlocks(1, CONF, SPARK);
    return new RelayPush(stream, blocks, worker.connections().timer(), PARTITIONS, CONF);
  }

  /** Writes rows of at least {@code bytes}; how many. */
  private static int write(RelayPush push, int bytes) throws IOException {
    UnsafeRow row = row();
    int rows = bytes / RowFormat.length(row) + 1;
    for (int i = 0; i < rows; i++) {
      push.write(i % PARTITIONS, row);
    }
    return rows;
  }

  @Test
  void rowsThatGoOutAtOnceAreNotCompressed() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> null); RelayPush push = open(worker)) {
      int rows = write(push, 10_000);
      push.sendRest();
      assertEquals(rows, push.rows());
      assertEquals((long) rows * RowFormat.length(row()), push.bytes());
    }
  }

  @Test
  void rowsAreCompressedWhenTheCreditIsUsedUp() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> null); RelayPush push = open(worker)) { // which grants nothing
      int rows = write(push, 3 * INITIAL_CREDIT / 2);
      push.sendRest(); // it would wait for ever with rows as they are
      assertEquals(rows, push.rows());
      assertTrue(push.bytes() <= INITIAL_CREDIT, push.bytes() + " bytes");
    }
  }

  @Test
  void aPushThatIsRefusedIsFoundBeforeOthersEnd() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> List.of(), ErrorCode.ATTEMPT_SUPERSEDED); RelayPush push = open(worker)) {
      FlightException refusal =
          assertThrows(
              FlightException.class,
              () -> {
                while (true) {
                  push.sendRest();
                  Thread.sleep(1);
                }
              });
      assertEquals(ErrorCode.ATTEMPT_SUPERSEDED, refusal.code());
    }
  }

  @Test
  void compressedBlocksAreReadAsTheRowsTheyWere() throws Exception {
    for (String codec : List.of("lz4", "zstd", "snappy")) {
      SparkConf spark = SPARK.clone().set("spark.io.compression.codec", codec);
      byte[] rows = new byte[10 * RowFormat.length(row())];
      for (int i = 0; i < 10; i++) {
        RowFormat.put(row(), rows, i * RowFormat.length(row()));
      }
      BlockBatch batch = new BlockBatch(rows.length);
      try (RelayBlocks blocks = new RelayBlocks(1, CONF, spark)) {
        blocks.append(batch, rows, rows.length, true);
      }
      byte[] sent = new byte[batch.size()];
      batch.payloadBytes().get(sent);
      if (codec.equals("snappy")) { // none of ours
        assertArrayEquals(rows, sent);
        continue;
      }
      assertTrue(sent.length < rows.length / 2, sent.length + " bytes");
      RowBlockReader reader = new RowBlockReader();
      ByteArrayInputStream stream = new ByteArrayInputStream(sent);
      assertTrue(reader.next(stream));
      assertArrayEquals(rows, Arrays.copyOf(reader.rows(), reader.length()));
      assertFalse(reader.next(stream));
    }
  }
}
