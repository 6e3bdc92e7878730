package org.apache.spark.shuffle.flight.push;

import com.google.protobuf.ByteString;
import java.io.File;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import org.apache.spark.shuffle.flight.client.Backoff;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.proto.AdoptRequest;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.LendReply;
import org.apache.spark.shuffle.flight.proto.LendRequest;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.Totals;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A map output that is written to a file which the worker lent, and which it takes back with the commit. The file is
 * locked while it is open: the worker refuses one that somebody still writes.
 */
final class LocalFileWriter implements BlockStream {
  private static final Logger LOG = LoggerFactory.getLogger(LocalFileWriter.class);

  private final LocalFileAccess localFiles;
  private final WorkerAddress worker;
  private final PutCommand command;
  private final Path path;
  private final FileChannel file;
  private final Patience patience;
  private final BlockTable table = new BlockTable();

  /**
   * How long to wait for the worker.
   *
   * @param answer for the answer to the commit
   * @param retry while it cannot be reached
   * @param killCheck throws when the task was killed
   */
  record Patience(Duration answer, Duration retry, Runnable killCheck) {}

  private LocalFileWriter(
      LocalFileAccess localFiles, WorkerAddress worker, PutCommand command, Path path, FileChannel file, Patience patience) {
    this.localFiles = localFiles;
    this.worker = worker;
    this.command = command;
    this.path = path;
    this.file = file;
    this.patience = patience;
  }

  /** A file for a map output; null when there is none, for whatever reason: push it. */
  static LocalFileWriter borrow(LocalFileAccess localFiles, WorkerAddress worker, PutCommand command, Patience patience)
      throws InterruptedIOException {
    ByteString nonce = localFiles.nonce(worker, command.getShuffle());
    if (nonce == null) {
      return null;
    }
    try {
      LendRequest request = LendRequest.newBuilder().setNonce(nonce).setCommand(command).build();
      List<byte[]> results = localFiles.act(worker, "lend", request, localFiles.timeout());
      if (results.isEmpty()) {
        return null;
      }
      LendReply reply = LendReply.parseFrom(results.get(0));
      return reply.hasCommitted() ? null : open(localFiles, worker, command, Path.of(reply.getPath()), patience);
    } catch (InterruptedIOException e) {
      throw e;
    } catch (IOException e) {
      localFiles.failed(worker, e);
    } catch (InvalidPathException e) {
      localFiles.failed(worker, new IOException(e));
    }
    return null;
  }

  private static LocalFileWriter open(
      LocalFileAccess localFiles, WorkerAddress worker, PutCommand command, Path path, Patience patience) throws IOException {
    FileChannel file = FileChannel.open(path, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    try {
      if (file.tryLock() != null) {
        return new LocalFileWriter(localFiles, worker, command, path, file, patience);
      }
    } catch (IOException | OverlappingFileLockException e) {
      file.close();
      throw new IOException(path + " cannot be locked", e);
    }
    file.close();
    throw new IOException(path + " is locked by somebody else");
  }

  @Override
  public void send(BlockBatch batch, long backlog) throws IOException {
    patience.killCheck().run(); // a file, unlike a stream, never makes the task wait, where it would be asked
    ByteBuffer payload = batch.payloadBytes();
    try {
      while (payload.hasRemaining()) {
        file.write(payload);
      }
    } catch (IOException e) {
      if (!Thread.currentThread().isInterrupted()) {
        localFiles.failed(worker, e); // the task's next attempt pushes: the worker may know how to make room
      }
      throw e;
    }
    batch.addRowsTo(table);
  }

  /** Adds a block of the file that {@link #replaceBy} has put in this one's place. */
  void addBlock(int partition, int crc32c, int length) {
    table.add(partition, crc32c, length, length, 0);
  }

  /** Puts a finished file in the place of this one, to which nothing was written. Where it is now; null: write it here. */
  File replaceBy(File finished) {
    try {
      return Files.move(finished.toPath(), path, StandardCopyOption.ATOMIC_MOVE).toFile();
    } catch (IOException e) {
      LOG.debug("{} is copied, it cannot be moved: {}", finished, e.toString());
      return null;
    }
  }

  @Override
  public Committed commit(Totals totals) throws IOException {
    file.close();
    Backoff backoff = new Backoff(patience.retry());
    while (true) {
      try {
        return adopt(totals);
      } catch (FlightException e) {
        localFiles.failed(worker, e);
        boolean again = e.passing() || e.code() == ErrorCode.PERMISSION_DENIED;
        if (!again || !backoff.mayGoOn()) {
          throw e;
        }
        LOG.info("{}; handing over map {} again", e.getMessage(), command.getOutput().getMap());
      }
      backoff.pause("handing over map " + command.getOutput().getMap());
      patience.killCheck().run();
      refresh();
    }
  }

  private Committed adopt(Totals totals) throws IOException {
    ByteString nonce = localFiles.anyNonce(worker, command.getShuffle());
    AdoptRequest request =
        AdoptRequest.newBuilder()
            .setNonce(nonce)
            .setCommand(command)
            .setEnd(totals)
            .setTable(table.toByteString())
            .build();
    List<byte[]> results = localFiles.act(worker, "adopt", request, patience.answer());
    if (results.isEmpty()) {
      throw FlightException.broken(worker.toString(), "took a file over without saying so", null);
    }
    return BlockStream.checked(worker.toString(), command.getOutput(), totals, Committed.parseFrom(results.get(0)));
  }

  private void refresh() throws IOException {
    try {
      localFiles.connections().refresh();
    } catch (FlightException e) {
      LOG.info("{}; trying the last known address of {}", e.getMessage(), worker.id());
    }
  }

  @Override
  public void abort() {
    try {
      file.close();
    } catch (IOException e) {
      LOG.debug("{}: {}", path, e.toString()); // it is closed all the same
    }
    // Where this is not done, the worker drops the file in time.
    PeriodicTask.start(localFiles.connections().pool(), "dropping a file", this::drop);
  }

  private void drop() {
    try {
      ByteString nonce = localFiles.anyNonce(worker, command.getShuffle());
      LendRequest request = LendRequest.newBuilder().setNonce(nonce).setCommand(command).build();
      localFiles.act(worker, "drop", request, localFiles.timeout());
    } catch (IOException e) {
      LOG.info("{}; the worker drops map {} in time", e.getMessage(), command.getOutput().getMap());
    }
  }
}
