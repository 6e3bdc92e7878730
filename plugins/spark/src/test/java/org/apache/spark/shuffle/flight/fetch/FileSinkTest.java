package org.apache.spark.shuffle.flight.fetch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.network.shuffle.DownloadFile;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.DownloadFileWritableChannel;
import org.apache.spark.network.util.TransportConf;
import org.junit.jupiter.api.Test;

class FileSinkTest {
  @Test
  void fileThatCannotBeOpenedIsDeleted() {
    List<String> done = new ArrayList<>();
    DownloadFile file =
        new DownloadFile() {
          @Override
          public boolean delete() {
            return done.add("deleted");
          }

          @Override
          public DownloadFileWritableChannel openForWriting() throws IOException {
            throw new IOException("too many open files");
          }

          @Override
          public String path() {
            return "none";
          }
        };
    DownloadFileManager files =
        new DownloadFileManager() {
          @Override
          public DownloadFile createTempFile(TransportConf conf) {
            return file;
          }

          @Override
          public boolean registerTempFileToClean(DownloadFile finished) {
            return true;
          }
        };
    FileSink sink = new FileSink(files, null);
    assertThrows(IOException.class, () -> sink.add(Unpooled.wrappedBuffer(new byte[1]), 0, 1));
    sink.discard();
    assertEquals(List.of("deleted"), done);
  }
}
