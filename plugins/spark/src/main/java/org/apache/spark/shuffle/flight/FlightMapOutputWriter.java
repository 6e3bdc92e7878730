package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.ShufflePartitionWriter;
import org.apache.spark.shuffle.api.metadata.MapOutputCommitMessage;
import org.apache.spark.shuffle.flight.push.DataPusher;

/**
 * Streams the partitions of one map task, in their order, to its push. Spark's partition checksums are not used: each
 * block has its own crc32c.
 */
final class FlightMapOutputWriter implements ShuffleMapOutputWriter {
  private final DataPusher push;
  private final long[] lengths;

  FlightMapOutputWriter(DataPusher push, int partitions) {
    this.push = push;
    this.lengths = new long[partitions];
  }

  @Override
  public ShufflePartitionWriter getPartitionWriter(int partition) throws IOException {
    push.startPartition(partition);
    return new PartitionWriter(partition);
  }

  @Override
  public MapOutputCommitMessage commitAllPartitions(long[] checksums) throws IOException {
    push.commit();
    return MapOutputCommitMessage.of(lengths);
  }

  @Override
  public void abort(Throwable error) {
    push.close();
  }

  /** Closing it does nothing: the partition ends when the next begins. */
  private final class PartitionWriter extends OutputStream implements ShufflePartitionWriter {
    private final int partition;
    private final byte[] single = new byte[1];

    PartitionWriter(int partition) {
      this.partition = partition;
    }

    @Override
    public OutputStream openStream() {
      return this;
    }

    @Override
    public long getNumBytesWritten() {
      return lengths[partition];
    }

    @Override
    public void write(int value) throws IOException {
      single[0] = (byte) value;
      write(single, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      push.write(bytes, offset, length, 0);
      lengths[partition] += length;
    }
  }
}
