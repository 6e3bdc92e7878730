package org.apache.spark.shuffle.flight.fetch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.junit.jupiter.api.Test;

class FailedBlocksTest {
  private static final class Told implements BlockFetchingListener {
    final List<String> failed = new ArrayList<>();

    @Override
    public void onBlockFetchSuccess(String block, ManagedBuffer data) {
      throw new AssertionError(block);
    }

    @Override
    public void onBlockFetchFailure(String block, Throwable why) {
      failed.add(block);
    }
  }

  private final FailedBlocks failures = new FailedBlocks();

  private void fail(String block, ErrorCode code) {
    failures.add(WantedBlock.parse(block, LongUnaryOperator.identity()), FlightException.found("w1", code, "of " + block));
  }

  @Test
  void onlyLostAndCorruptOutputsAreReportedEachOnce() {
    fail("shuffle_1_10_0", ErrorCode.OVERLOADED);
    fail("shuffle_1_11_0", ErrorCode.BLOCK_CORRUPT);
    fail("shuffle_1_12_0", ErrorCode.STORAGE_FAILED);
    fail("shuffle_1_13_0", ErrorCode.MAP_OUTPUT_LOST);
    fail("shuffle_1_11_1", ErrorCode.BLOCK_CORRUPT);
    FailedBlocks.Report report = failures.report();
    assertEquals(List.of(11L, 13L), report.outputs().stream().map(MapAttempt::getMap).toList());
    assertEquals("w1: BLOCK_CORRUPT: of shuffle_1_11_0", report.reason());
  }

  @Test
  void workerThatCannotBeReachedIsNoLoss() {
    failures.add(WantedBlock.parse("shuffle_1_10_0", LongUnaryOperator.identity()),
        FlightException.broken("w1", "its stream broke", null));
    fail("shuffle_1_12_0", ErrorCode.SHUTTING_DOWN);
    assertNull(failures.report());
  }

  @Test
  void eachIsAnsweredInOrder() {
    Told told = new Told();
    fail("shuffle_1_11_0", ErrorCode.BLOCK_CORRUPT);
    fail("shuffle_1_10_0_4", ErrorCode.OVERLOADED);
    failures.answer(told);
    assertEquals(List.of("shuffle_1_11_0", "shuffle_1_10_0_4"), told.failed);
  }
}
