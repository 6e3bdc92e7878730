package org.apache.spark.shuffle.flight.fetch;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import org.apache.spark.network.buffer.ManagedBuffer;

/** Where the bytes of one wanted block gather: memory, or a file when Spark asks for one. */
interface BlockSink {
  /** Takes {@code length} bytes. To keep the source it has to be retained; it is not changed. */
  void add(ByteBuf source, int offset, int length) throws IOException;

  /** The whole block, to be released by the caller. Nothing follows. */
  ManagedBuffer finish() throws IOException;

  /** Frees what was gathered; instead of {@link #finish}. */
  void discard();
}
