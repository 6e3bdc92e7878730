package org.apache.spark.shuffle.flight.net;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;

/** Gathers a block as slices of the received messages: nothing is copied, and it may be larger than an array. */
final class MemorySink implements BlockSink {
  private final List<ByteBuffer> slices = new ArrayList<>();
  private long size;

  @Override
  public void add(byte[] source, int offset, int length) {
    slices.add(ByteBuffer.wrap(source, offset, length).slice());
    size += length;
  }

  @Override
  public ManagedBuffer finish() {
    return slices.size() == 1 ? new NioManagedBuffer(slices.get(0)) : new Slices(slices, size);
  }

  @Override
  public void discard() {
    slices.clear();
  }

  /** A block in several pieces on the heap; the garbage collector frees it, so the reference count means nothing. */
  private static final class Slices extends ManagedBuffer {
    private final List<ByteBuffer> slices;
    private final long size;

    Slices(List<ByteBuffer> slices, long size) {
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
      slices.forEach(slice -> whole.put(slice.duplicate()));
      return whole.flip();
    }

    @Override
    public InputStream createInputStream() {
      List<InputStream> streams = new ArrayList<>(slices.size());
      slices.forEach(s -> streams.add(new ByteArrayInputStream(s.array(), s.arrayOffset(), s.remaining())));
      return new SequenceInputStream(Collections.enumeration(streams));
    }

    @Override
    public ManagedBuffer retain() {
      return this;
    }

    @Override
    public ManagedBuffer release() {
      return this;
    }

    @Override
    public Object convertToNetty() {
      throw new UnsupportedOperationException("a fetched block is not sent on");
    }

    @Override
    public Object convertToNettyForSsl() {
      throw new UnsupportedOperationException("a fetched block is not sent on");
    }
  }
}
