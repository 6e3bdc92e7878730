package org.apache.spark.shuffle.flight.net;

import java.io.IOException;
import org.apache.spark.network.buffer.ManagedBuffer;

/** Where the bytes of one wanted block gather: memory, or a file when Spark asks for one. */
public interface BlockSink {
  /** Takes {@code length} bytes. The array may be kept, but not changed. */
  void add(byte[] source, int offset, int length) throws IOException;

  /** The whole block. */
  ManagedBuffer finish() throws IOException;

  /** Frees what was gathered. */
  void discard();
}
