package org.apache.spark.shuffle.flight.wire;

import io.netty.buffer.ByteBufAllocator;
import org.apache.spark.network.util.NettyUtils;

/**
 * Where fetched blocks lie: Spark's own pool for them, outside of the heap. An array of a MiB or more for each would cost a
 * collection of garbage for every few hundred. With {@code spark.network.io.preferDirectBufs=false}, which Spark looks at when
 * it makes the pool, it is on the heap.
 *
 * <p>Of Spark's two pools it is the one of its own fetches, without caches of threads: a task frees what another thread
 * allocated, so that such a cache would keep memory and never give any (Spark's {@code NettyUtils.createPooledByteBufAllocator}).
 */
public final class FetchedMemory {
  public static final ByteBufAllocator POOL = NettyUtils.getSharedPooledByteBufAllocator(true, false);

  private FetchedMemory() {}
}
