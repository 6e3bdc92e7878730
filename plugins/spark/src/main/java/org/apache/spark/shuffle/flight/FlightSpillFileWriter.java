package org.apache.spark.shuffle.flight;

import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import org.apache.spark.shuffle.api.SingleSpillShuffleMapOutputWriter;
import org.apache.spark.shuffle.flight.push.DataPusher;

/**
 * Hands over the one spill file of {@code UnsafeShuffleWriter}, whose partitions lie in it back to back, or pushes it. Spark
 * deletes the file afterwards, if it is still there.
 */
final class FlightSpillFileWriter implements SingleSpillShuffleMapOutputWriter {
  private static final int BUFFER_BYTES = 1 << 16;

  private final DataPusher push;

  FlightSpillFileWriter(DataPusher push) {
    this.push = push;
  }

  @Override
  public void transferMapSpillFile(File file, long[] partitionLengths, long[] checksums) throws IOException {
    if (push.takeOver(file, partitionLengths)) {
      push.commit();
      return;
    }
    long left = Arrays.stream(partitionLengths).sum();
    byte[] buffer = new byte[BUFFER_BYTES];
    try (InputStream in = new FileInputStream(file)) {
      for (int partition = 0; partition < partitionLengths.length; partition++) {
        push.startPartition(partition);
        long inPartition = partitionLengths[partition];
        while (inPartition > 0) {
          int read = in.read(buffer, 0, (int) Math.min(buffer.length, inPartition));
          if (read < 0) {
            throw new EOFException(file + " is " + left + " bytes shorter than its partitions");
          }
          inPartition -= read;
          left -= read;
          push.write(buffer, 0, read, left);
        }
      }
    }
    push.commit();
  }
}
