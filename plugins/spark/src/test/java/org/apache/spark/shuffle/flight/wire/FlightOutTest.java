package org.apache.spark.shuffle.flight.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Drainable;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import org.apache.arrow.flatbuf.Field;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.flatbuf.Schema;
import org.junit.jupiter.api.Test;

class FlightOutTest {
  private static FlightIn sent(FlightOut message) throws IOException {
    InputStream stream = message.stream();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    int announced = stream.available();
    assertEquals(announced, ((Drainable) stream).drainTo(bytes));
    assertEquals(announced, bytes.size());
    return FlightIn.parse(new ByteArrayInputStream(bytes.toByteArray()), UnpooledByteBufAllocator.DEFAULT);
  }

  @Test
  void schemaNamesTheColumnsOfAPushWithoutNulls() throws IOException {
    FlightIn message = sent(FlightOut.putSchema(new byte[] {7}));
    Message header = Message.getRootAsMessage(ByteBuffer.wrap(message.header()));
    assertEquals(MessageHeader.Schema, header.headerType());
    Schema schema = (Schema) header.header(new Schema());
    StringBuilder names = new StringBuilder();
    for (int i = 0; i < schema.fieldsLength(); i++) {
      Field field = schema.fields(i);
      names.append(field.name()).append(' ');
      assertFalse(field.nullable());
    }
    assertEquals("partition crc32c raw_length records payload ", names.toString());
  }

  @Test
  void batchCarriesTableAndPayloads() throws IOException {
    BlockTotals totals = new BlockTotals();
    BlockBatch batch = new BlockBatch(64);
    batch.append(new byte[] {1, 2, 3}, 0, 3);
    batch.endBlock(4, totals);
    batch.append(new byte[] {0, 5, 6, 0}, 1, 2);
    BlockTotals ofNine = new BlockTotals();
    batch.endBlock(9, 7, totals, ofNine);

    FlightIn message = sent(FlightOut.putBatch(batch, new byte[] {42}));

    assertArrayEquals(new byte[] {42}, message.metadata());
    ByteBuf body = message.body();
    assertEquals(0, body.readableBytes() % 8);
    Message header = Message.getRootAsMessage(ByteBuffer.wrap(message.header()));
    RecordBatch record = (RecordBatch) header.header(new RecordBatch());
    assertEquals(body.readableBytes(), header.bodyLength());
    assertEquals(2, record.length());
    assertEquals(4, body.getIntLE((int) record.buffers(1).offset()));
    assertEquals(9, body.getIntLE((int) record.buffers(1).offset() + 4));
    assertEquals(Pulls.crc(new byte[] {1, 2, 3}), body.getIntLE((int) record.buffers(3).offset()));
    assertEquals(2, body.getLongLE((int) record.buffers(5).offset() + 8));
    assertEquals(0, body.getLongLE((int) record.buffers(7).offset()));
    assertEquals(7, body.getLongLE((int) record.buffers(7).offset() + 8));
    assertEquals(5, body.getLongLE((int) record.buffers(9).offset() + 16));
    int data = (int) record.buffers(10).offset();
    assertArrayEquals(new byte[] {1, 2, 3, 5, 6}, ByteBufUtil.getBytes(body, data, 5));
    assertEquals(5, record.buffers(10).length());
    assertEquals(2, totals.toMessage().getBlocks());
    assertEquals(7, totals.toMessage().getRecords());
    assertEquals(1, ofNine.toMessage().getBlocks());
  }

  @Test
  void controlCarriesMetadataOnly() throws IOException {
    FlightIn message = sent(FlightOut.control(new byte[] {1, 2}));
    assertArrayEquals(new byte[] {1, 2}, message.metadata());
    assertTrue(message.header().length == 0 && !message.body().isReadable());
  }
}
