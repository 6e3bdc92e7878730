package org.apache.spark.shuffle.flight.fetch;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufInputStream;
import io.netty.util.ReferenceCounted;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NettyManagedBuffer;

/**
 * Gathers a block as slices of the received messages: nothing is copied, and it may be larger than a buffer. Each slice
 * keeps its message's memory until the block is released.
 */
final class MemorySink implements BlockSink {
  private final List<ByteBuf> slices = new ArrayList<>();
  private ByteBuf source;
  private int start;
  private int end;
  private long size;

  @Override
  public void add(ByteBuf from, int offset, int length) {
    size += length;
    if (from == source && offset == end) {
      end += length; // the blocks of a message lie back to back: they make one slice
      return;
    }
    closeSlice();
    source = from.retain();
    start = offset;
    end = offset + length;
  }

  private void closeSlice() {
    if (source != null) {
      slices.add(source.slice(start, end - start)); // with the reference that was taken for it
      source = null;
    }
  }

  @Override
  public ManagedBuffer finish() {
    closeSlice();
    return slices.size() == 1 ? new NettyManagedBuffer(slices.get(0)) : new Slices(slices, size);
  }

  @Override
  public void discard() {
    closeSlice();
    slices.forEach(ReferenceCounted::release);
    slices.clear();
  }

  /** A block in several pieces. */
  private static final class Slices extends ManagedBuffer {
    private final List<ByteBuf> slices;
    private final long size;

    Slices(List<ByteBuf> slices, long size) {
      this.slices = slices;
      this.size = size;
    }

    @Override
    public long size() {
      return size;
    }

    @Override
    public ByteBuffer nioByteBuffer() {
      ByteBuffer whole = ByteBuffer.allocate(Math.toIntExact(size));
      slices.forEach(slice -> whole.put(slice.nioBuffer()));
      return whole.flip();
    }

    @Override
    public InputStream createInputStream() {
      List<InputStream> streams = new ArrayList<>(slices.size());
      slices.forEach(slice -> streams.add(new ByteBufInputStream(slice.duplicate())));
      return new SequenceInputStream(Collections.enumeration(streams));
    }

    @Override
    public ManagedBuffer retain() {
      slices.forEach(ReferenceCounted::retain);
      return this;
    }

    @Override
    public ManagedBuffer release() {
      slices.forEach(ReferenceCounted::release);
      return this;
    }

    @Override
    public Object convertToNetty() {
      throw new UnsupportedOperationException("a fetched block is not sent on");
    }

    /** Overrides Spark 4's; 3.5 has none. */
    public Object convertToNettyForSsl() {
      throw new UnsupportedOperationException("a fetched block is not sent on");
    }
  }
}
