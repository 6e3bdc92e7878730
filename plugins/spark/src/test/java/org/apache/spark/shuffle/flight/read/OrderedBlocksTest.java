package org.apache.spark.shuffle.flight.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class OrderedBlocksTest {
  private final OrderedBlocks order = new OrderedBlocks(List.of("a", "b", "c", "d"));
  private final Map<String, ByteBuf> buffers = new HashMap<>();
  private final List<String> heard = new ArrayList<>();
  private final BlockFetchingListener one = order.listener(hearing(1));
  private final BlockFetchingListener other = order.listener(hearing(2));

  private BlockFetchingListener hearing(int request) {
    return new BlockFetchingListener() {
      @Override
      public void onBlockFetchSuccess(String block, ManagedBuffer data) {
        heard.add(request + block);
      }

      @Override
      public void onBlockFetchFailure(String block, Throwable why) {
        heard.add(request + block + " " + why.getMessage());
      }
    };
  }

  private void arrives(BlockFetchingListener request, String block) {
    ByteBuf data = Unpooled.copiedBuffer(new byte[10]);
    buffers.put(block, data);
    request.onBlockFetchSuccess(block, new NettyManagedBuffer(data));
    data.release(); // as who fetches does
  }

  @AfterEach
  void everythingIsFreed() {
    order.close();
    buffers.forEach((block, data) -> assertEquals(0, data.refCnt(), block));
  }

  @Test
  void blocksOfSeveralRequestsAreGivenInOneOrder() {
    arrives(other, "d");
    arrives(other, "b");
    assertEquals(List.of(), heard);
    arrives(one, "a");
    assertEquals(List.of("1a", "2b"), heard);
    arrives(one, "c");
    assertEquals(List.of("1a", "2b", "1c", "2d"), heard);
  }

  @Test
  void failureIsGivenAtOnceAndEndsTheOrder() {
    arrives(other, "d");
    arrives(other, "c");
    one.onBlockFetchFailure("b", new IOException("lost"));
    assertEquals(List.of("2c", "2d", "1b lost"), heard);
    arrives(one, "a");
    assertEquals("1a", heard.get(3));
  }

  @Test
  void blockThatIsAskedForOnceMoreIsGivenAtOnce() {
    List.of("a", "b", "c", "d").forEach(block -> arrives(one, block));
    arrives(one, "b");
    assertEquals(List.of("1a", "1b", "1c", "1d", "1b"), heard);
  }

  @Test
  void whatIsHeldIsFreedWhenTheTaskEnds() {
    arrives(one, "c");
    arrives(other, "d");
    order.close();
    assertEquals(List.of(), heard);
    arrives(one, "a");
    assertEquals(List.of("1a"), heard, "what is under way goes to the listener, which frees it");
  }
}
