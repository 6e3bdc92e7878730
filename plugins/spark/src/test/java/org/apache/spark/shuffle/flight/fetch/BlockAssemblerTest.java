package org.apache.spark.shuffle.flight.fetch;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Error;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetControl;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.shuffle.flight.wire.FlightIn;
import org.apache.spark.shuffle.flight.wire.PulledBatch;
import org.apache.spark.shuffle.flight.wire.Pulls;
import org.apache.spark.shuffle.flight.wire.Pulls.Served;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class BlockAssemblerTest {
  private static final byte[] A = {1, 2};
  private static final byte[] B = {3};

  private final List<BlockAssembler.Outcome> outcomes = new ArrayList<>();
  private final List<BlockAssembler> assemblers = new ArrayList<>();
  private final List<ByteBuf> bodies = new ArrayList<>();

  private BlockAssembler wanting(String... ids) {
    List<WantedBlock> wanted = Stream.of(ids).map(id -> WantedBlock.parse(id, LongUnaryOperator.identity())).toList();
    assemblers.add(new BlockAssembler("worker w", wanted, MemorySink::new, outcomes::add));
    return assemblers.get(assemblers.size() - 1);
  }

  private void serve(BlockAssembler assembler, Served... blocks) throws IOException {
    try (FlightIn message = Pulls.message(List.of(blocks))) {
      bodies.add(message.body());
      assembler.accept(PulledBatch.of(message));
    }
  }

  /** Whatever became of the blocks: who was given one releases it, the pull discards the others, and nothing is left. */
  @AfterEach
  void allMemoryIsFreed() {
    List<ManagedBuffer> given = outcomes.stream().map(BlockAssembler.Outcome::buffer).filter(Objects::nonNull).toList();
    given.forEach(ManagedBuffer::retain);
    given.forEach(ManagedBuffer::release);
    assemblers.forEach(BlockAssembler::discard);
    for (ManagedBuffer buffer : given) {
      assertTrue(bodies.stream().anyMatch(body -> body.refCnt() > 0), "freed too early");
      buffer.release();
    }
    bodies.forEach(body -> assertEquals(0, body.refCnt()));
  }

  private static GetControl end(Served... blocks) {
    BlockTotals totals = new BlockTotals();
    for (Served block : blocks) {
      totals.add(block.partition(), block.checksum(), block.payload().length, block.payload().length, 0);
    }
    return GetControl.newBuilder().setEnd(totals.toMessage()).build();
  }

  private static GetControl lost(long map) {
    return GetControl.newBuilder()
        .setError(
            Error.newBuilder().setCode(ErrorCode.MAP_OUTPUT_LOST).setOutput(MapAttempt.newBuilder().setMap(map)))
        .build();
  }

  private static byte[] bytes(BlockAssembler.Outcome outcome) throws IOException {
    assertNull(outcome.failure());
    assertEquals(outcome.buffer().size(), outcome.buffer().nioByteBuffer().remaining());
    return outcome.buffer().createInputStream().readAllBytes();
  }

  @Test
  void joinsTheStoredBlocksOfAWantedOne() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1_3", "shuffle_0_6_1");
    Served[] blocks = {new Served(5, 1, A), new Served(5, 1, B), new Served(5, 2, A), new Served(6, 1, B)};
    serve(assembler, blocks[0], blocks[1]);
    serve(assembler, blocks[2], blocks[3]);
    assembler.accept(end(blocks));
    assertTrue(assembler.ended());
    assertArrayEquals(new byte[] {1, 2, 3, 1, 2}, bytes(outcomes.get(0)));
    assertArrayEquals(B, bytes(outcomes.get(1)));
  }

  @Test
  void errorOfOneMapLeavesTheOthers() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1", "shuffle_0_5_2", "shuffle_0_6_1");
    Served block = new Served(6, 1, B);
    assembler.accept(lost(5));
    serve(assembler, block);
    assembler.accept(end(block));
    assertEquals(ErrorCode.MAP_OUTPUT_LOST, outcomes.get(0).failure().code());
    assertEquals(ErrorCode.MAP_OUTPUT_LOST, outcomes.get(1).failure().code());
    assertArrayEquals(B, bytes(outcomes.get(2)));
  }

  @Test
  void corruptBlockFailsAlone() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1", "shuffle_0_6_1");
    Served[] blocks = {new Served(5, 1, A, 12345), new Served(6, 1, B)};
    serve(assembler, blocks);
    assembler.accept(end(blocks));
    assertEquals(ErrorCode.BLOCK_CORRUPT, outcomes.get(0).failure().code());
  }

  @Test
  void blockOfWhichNothingCameIsLost() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1", "shuffle_0_6_1");
    Served block = new Served(6, 1, B);
    serve(assembler, block);
    assembler.accept(end(block));
    assertEquals(ErrorCode.MAP_OUTPUT_LOST, outcomes.get(0).failure().code());
  }

  @Test
  void missingBlockIsNoticedByTheTotals() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1_3");
    serve(assembler, new Served(5, 1, A));
    FlightException failure =
        assertThrows(FlightException.class, () -> assembler.accept(end(new Served(5, 1, A), new Served(5, 2, A))));
    assertTrue(failure.passing());
    assertFalse(assembler.ended());
  }

  @Test
  void blockIsGivenOutWhenOneBehindItHasArrived() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1", "shuffle_0_6_1", "shuffle_0_7_1");
    serve(assembler, new Served(5, 1, A), new Served(5, 1, B));
    assertEquals(0, outcomes.size());
    serve(assembler, new Served(6, 1, A));
    assertEquals(1, assembler.settled());
    assertArrayEquals(new byte[] {1, 2, 3}, bytes(outcomes.get(0)));
    Served[] all = {new Served(5, 1, A), new Served(5, 1, B), new Served(6, 1, A), new Served(7, 1, A)};
    serve(assembler, all[3]);
    assertEquals(2, outcomes.size());
    assembler.accept(end(all));
    assertEquals(3, outcomes.size());
  }

  @Test
  void contradictionAfterABlockWasGivenOutIsFinal() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1", "shuffle_0_6_1");
    serve(assembler, new Served(5, 1, A), new Served(6, 1, A));
    assertEquals(1, outcomes.size());
    FlightException totals =
        assertThrows(FlightException.class, () -> assembler.accept(end(new Served(5, 1, A), new Served(6, 1, B))));
    assertFalse(totals.passing());
    FlightException turn = assertThrows(FlightException.class, () -> serve(assembler, new Served(5, 1, B)));
    assertFalse(turn.passing());
    assertEquals(1, outcomes.size());
  }

  @Test
  void pullHasNotEndedAsLongAsABlockIsUnanswered() throws IOException {
    BlockAssembler assembler =
        new BlockAssembler(
            "worker w", List.of(WantedBlock.parse("shuffle_0_5_1", LongUnaryOperator.identity())), MemorySink::new,
            outcome -> {
              outcomes.add(outcome);
              throw new IllegalStateException("on purpose");
            });
    Served block = new Served(5, 1, A);
    serve(assembler, block);
    assertThrows(IllegalStateException.class, () -> assembler.accept(end(block)));
    assertFalse(assembler.ended());
  }

  @Test
  void blockThatWasNotAskedForIsRefused() {
    assertThrows(IOException.class, () -> serve(wanting("shuffle_0_5_1"), new Served(5, 2, A)));
    assertThrows(IOException.class, () -> serve(wanting("shuffle_0_5_1"), new Served(4, 1, A)));
  }

  @Test
  void errorWithoutAMapOutputFailsThePull() {
    GetControl control =
        GetControl.newBuilder().setError(Error.newBuilder().setCode(ErrorCode.UNKNOWN_SHUFFLE)).build();
    FlightException failure = assertThrows(FlightException.class, () -> wanting("shuffle_0_5_1").accept(control));
    assertEquals(ErrorCode.UNKNOWN_SHUFFLE, failure.code());
    assertFalse(failure.passing());
  }

  @Test
  void namesOfBlocksAreSparks() {
    assertEquals(new WantedBlock("shuffle_3_7_9", 7, 9, 10), WantedBlock.parse("shuffle_3_7_9", LongUnaryOperator.identity()));
    assertEquals(new WantedBlock("shuffle_3_7_9_12", 7, 9, 12), WantedBlock.parse("shuffle_3_7_9_12", LongUnaryOperator.identity()));
    assertEquals(new WantedBlock("shuffle_3_7_9", 70, 9, 10), WantedBlock.parse("shuffle_3_7_9", map -> 10 * map));
    assertThrows(
        IllegalArgumentException.class, () -> WantedBlock.parse("rdd_1_2_3", LongUnaryOperator.identity()));
  }

  @Test
  void blocksBehindTheEndAreRefused() throws IOException {
    BlockAssembler assembler = wanting("shuffle_0_5_1");
    Served block = new Served(5, 1, A);
    serve(assembler, block);
    assembler.accept(end(block));
    FlightException failure = assertThrows(FlightException.class, () -> serve(assembler, block));
    assertTrue(failure.getMessage().contains("behind the end"), failure.getMessage());
    assertEquals(1, outcomes.size());
  }
}
