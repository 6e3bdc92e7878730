package org.apache.spark.shuffle.flight.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.CodedOutputStream;
import io.grpc.HasByteBuffer;
import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class FlightInTest {
  private final UnpooledByteBufAllocator memory = new UnpooledByteBufAllocator(true, true);
  private final byte[] body = new byte[100_000];

  FlightInTest() {
    new Random(7).nextBytes(body);
  }

  @AfterEach
  void allMemoryIsFreed() {
    assertEquals(0, memory.metric().usedDirectMemory());
  }

  private static byte[] message(byte[]... bodies) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    CodedOutputStream out = CodedOutputStream.newInstance(bytes);
    out.writeByteArray(2, new byte[] {1, 2});
    out.writeByteArray(3, new byte[] {3});
    out.writeByteArray(99, new byte[] {9, 9}); // of a later version
    for (byte[] body : bodies) {
      out.writeByteArray(1000, body);
    }
    out.flush();
    return bytes.toByteArray();
  }

  /** As gRPC's: gives out its next bytes in pieces, without copying them. */
  private static final class Pieces extends ByteArrayInputStream implements HasByteBuffer {
    private static final int PIECE = 16_384;
    private int given;

    Pieces(byte[] bytes) {
      super(bytes);
    }

    @Override
    public boolean byteBufferSupported() {
      return true;
    }

    @Override
    public ByteBuffer getByteBuffer() {
      given++;
      return ByteBuffer.wrap(buf, pos, Math.min(PIECE - pos % PIECE, count - pos));
    }
  }

  @Test
  void bodyLiesInTheGivenMemoryUntilTheMessageIsClosed() throws IOException {
    try (FlightIn message = FlightIn.parse(new ByteArrayInputStream(message(body)), memory)) {
      assertArrayEquals(new byte[] {1, 2}, message.header());
      assertArrayEquals(new byte[] {3}, message.metadata());
      assertArrayEquals(body, ByteBufUtil.getBytes(message.body()));
      assertTrue(message.body().isDirect());
      assertEquals(body.length, memory.metric().usedDirectMemory());
    }
  }

  @Test
  void piecesAreCopiedAsTheyLie() throws IOException {
    Pieces pieces = new Pieces(message(body));
    try (FlightIn message = FlightIn.parse(pieces, memory)) {
      assertArrayEquals(body, ByteBufUtil.getBytes(message.body()));
      assertArrayEquals(new byte[] {3}, message.metadata());
    }
    assertTrue(pieces.given >= body.length / Pieces.PIECE, pieces.given + " pieces");
  }

  @Test
  void ofTwoBodiesTheLastCounts() throws IOException {
    byte[] last = {5, 6, 7};
    try (FlightIn message = FlightIn.parse(new Pieces(message(body, last)), memory)) {
      assertArrayEquals(last, ByteBufUtil.getBytes(message.body()));
    }
  }

  @Test
  void cutMessageIsRefusedAndLeavesNothing() throws IOException {
    byte[] whole = message(new byte[] {4}, Arrays.copyOf(body, 300));
    int cut = 0;
    for (int length = 1; length < whole.length; length++) {
      byte[] part = Arrays.copyOf(whole, length);
      try (FlightIn message = FlightIn.parse(new Pieces(part), memory)) {
        assertTrue(message.body().readableBytes() <= 1, "cut between two fields");
      } catch (IOException expected) {
        cut++;
      }
      assertEquals(0, memory.metric().usedDirectMemory());
    }
    assertTrue(cut > 300);
  }

  @Test
  void streamThatEndsBeforeItSaidIsRefused() throws IOException {
    byte[] whole = message(body);
    ByteArrayInputStream shorter =
        new ByteArrayInputStream(whole, 0, whole.length - 1) {
          @Override
          public synchronized int available() {
            return super.available() + 1;
          }
        };
    assertThrows(IOException.class, () -> FlightIn.parse(shorter, memory));
  }

  @Test
  void takesTheHeapWhenThereIsNoRoomOutsideOfIt() throws IOException {
    AbstractByteBufAllocator full =
        new AbstractByteBufAllocator(true) {
          @Override
          protected ByteBuf newDirectBuffer(int initial, int maximum) {
            throw new OutOfMemoryError("on purpose");
          }

          @Override
          protected ByteBuf newHeapBuffer(int initial, int maximum) {
            throw new AssertionError("not asked for");
          }

          @Override
          public boolean isDirectBufferPooled() {
            return true;
          }
        };
    try (FlightIn message = FlightIn.parse(new ByteArrayInputStream(message(body)), full)) {
      assertFalse(message.body().isDirect());
      assertArrayEquals(body, ByteBufUtil.getBytes(message.body()));
    }
  }
}
