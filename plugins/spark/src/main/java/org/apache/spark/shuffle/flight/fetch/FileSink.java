package org.apache.spark.shuffle.flight.fetch;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.DownloadFile;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.DownloadFileWritableChannel;
import org.apache.spark.network.util.TransportConf;

/**
 * Streams a block to a temporary file: what Spark asks for when a request is larger than
 * {@code spark.network.maxRemoteBlockSizeFetchToMem}. As {@code OneForOneBlockFetcher} does, the file is handed to the
 * {@link DownloadFileManager} for cleaning up, or deleted when the reader is gone already.
 */
final class FileSink implements BlockSink {
  private final DownloadFileManager files;
  private final TransportConf conf;
  private DownloadFile file;
  private DownloadFileWritableChannel channel;

  FileSink(DownloadFileManager files, TransportConf conf) {
    this.files = files;
    this.conf = conf;
  }

  @Override
  public void add(ByteBuf source, int offset, int length) throws IOException {
    if (file == null) {
      file = files.createTempFile(conf);
      channel = file.openForWriting();
    }
    ByteBuffer bytes = source.nioBuffer(offset, length);
    while (bytes.hasRemaining()) {
      channel.write(bytes);
    }
  }

  @Override
  public ManagedBuffer finish() throws IOException {
    ManagedBuffer whole = channel.closeAndRead();
    if (!files.registerTempFileToClean(file)) {
      file.delete();
    }
    return whole;
  }

  @Override
  public void discard() {
    if (file == null) {
      return;
    }
    try {
      if (channel != null) { // it may not even have been opened
        channel.close();
      }
    } catch (IOException e) {
      // Nothing of the file is used any more; deleting it is what counts.
    }
    file.delete();
  }
}
