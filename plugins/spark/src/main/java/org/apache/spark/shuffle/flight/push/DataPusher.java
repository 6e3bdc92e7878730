package org.apache.spark.shuffle.flight.push;

import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.zip.CRC32C;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.ShuffleWriteMetrics;
import org.apache.spark.shuffle.MetadataFetchFailedException;
import org.apache.spark.shuffle.flight.blocks.MapLocation;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.Backoff;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.Protocol;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;
import org.apache.spark.storage.BlockManagerId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The output of one map task on its way to a worker: partitions are cut into blocks, blocks gathered into batches,
 * batches pushed while the task goes on. Used by the task's thread.
 *
 * <p>The stream is opened with the first byte. A map output without any bytes is never pushed: its {@code MapStatus}
 * says that all partitions are empty, and Spark does not fetch empty blocks.
 *
 * <p>The output's number at the worker is the task attempt id, so a retry has a number of its own and the protocol's
 * attempt is always 0. That is Spark's map id as well, but for {@code spark.shuffle.useOldFetchProtocol}; readers find
 * it in the location.
 */
public final class DataPusher implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(DataPusher.class);

  private final LocalFileAccess localFiles;
  private final Connections connections;
  private final FlightConf conf;
  private final ShuffleKey shuffle;
  private final int partitions;
  private final MapAttempt output;
  private final TaskContext context;
  private final BlockTotals totals = new BlockTotals();
  private BlockBatch batch;
  private final Set<String> failed = new HashSet<>();
  private WorkerAddress worker;
  private BlockStream stream;
  private int partition = -1;
  private String committedAt;
  private boolean committed;

  public DataPusher(LocalFileAccess localFiles, FlightConf conf, ShuffleKey shuffle, int partitions, TaskContext context) {
    this.localFiles = localFiles;
    this.connections = localFiles.connections();
    this.conf = conf;
    this.shuffle = shuffle;
    this.partitions = partitions;
    this.output = MapAttempt.newBuilder().setMap(context.taskAttemptId()).setAttempt(WantedBlock.ATTEMPT).build();
    this.context = context;
  }

  /** The bytes that follow are {@code next}'s. Spark's writers go through the partitions in ascending order. */
  public void startPartition(int next) throws IOException {
    if (next <= partition) {
      throw new IOException("partition " + next + " of map " + output.getMap() + " comes after partition " + partition);
    }
    if (batch != null) {
      batch.endBlock(partition, totals);
    }
    partition = next;
  }

  /** @param behind bytes of this map output that come after these, 0 when unknown */
  public void write(byte[] bytes, int offset, int length, long behind) throws IOException {
    write(bytes, offset, length, behind, 0);
  }

  /** The same; a block that ends with the last of these bytes, and of those behind them, has so many records. */
  private void write(byte[] bytes, int offset, int length, long behind, int records) throws IOException {
    if (batch == null && length > 0) {
      batch = new BlockBatch(conf.batchSize());
    }
    int at = offset;
    int end = offset + length;
    while (at < end) {
      int taken = Math.min(end - at, Math.min(batch.room(), conf.blockSize() - batch.openLength()));
      batch.append(bytes, at, taken);
      at += taken;
      long left = behind + end - at;
      if (batch.openLength() == conf.blockSize() || batch.room() == 0) {
        batch.endBlock(partition, left == 0 ? records : 0, totals);
      }
      if (batch.room() == 0) {
        send(left);
      }
    }
  }

  /**
   * The batch, for who makes a whole block of {@code next} in it, of {@code most} bytes at most, and says {@link
   * #madeBlock} then; null when there is no room for it now: use {@link #writeBlock}.
   */
  public BlockBatch roomFor(int next, int most) {
    if (batch == null) {
      batch = new BlockBatch(conf.batchSize());
    }
    partition = next;
    return most <= Math.min(batch.room(), conf.blockSize()) ? batch : null;
  }

  /** A block of {@code records} is in the batch. */
  public void madeBlock(int records) throws IOException {
    batch.endBlock(partition, records, totals);
    if (batch.room() == 0) {
      send(0);
    }
  }

  /**
   * Adds {@code records}, the bytes of {@code header} and of {@code bytes}, to {@code next}; partitions come in any order,
   * and again. Of several blocks that these bytes make the last one has the records.
   */
  public void writeBlock(int next, int records, byte[] header, int headerLength, byte[] bytes, int length)
      throws IOException {
    partition = next;
    write(header, 0, headerLength, length, records);
    write(bytes, 0, length, 0, records);
    if (batch != null) {
      batch.endBlock(partition, records, totals);
    }
  }

  /**
   * Hands over a finished file, in which the partitions lie back to back, by renaming it.
   *
   * @return false when it cannot be: then its bytes are to be written here
   */
  public boolean takeOver(File finished, long[] partitionLengths) throws IOException {
    if (Arrays.stream(partitionLengths).sum() < conf.batchSize()) {
      return false;
    }
    LocalFileWriter file = borrow();
    stream = file;
    File moved = file == null ? null : file.replaceBy(finished);
    if (moved == null) {
      return false;
    }
    CRC32C crc = new CRC32C();
    byte[] block = new byte[conf.blockSize()];
    try (InputStream in = new FileInputStream(moved)) {
      for (int p = 0; p < partitionLengths.length; p++) {
        for (long left = partitionLengths[p]; left > 0; left -= block.length) {
          int length = (int) Math.min(block.length, left);
          if (in.readNBytes(block, 0, length) < length) {
            throw new EOFException(finished + " is shorter than its partitions");
          }
          crc.reset();
          crc.update(block, 0, length);
          file.addBlock(p, (int) crc.getValue(), length);
          totals.add(p, (int) crc.getValue(), length, length, 0);
        }
      }
    }
    return true;
  }

  private void send(long backlog) throws IOException {
    try {
      if (stream == null) {
        LocalFileWriter file = borrow();
        stream = file != null ? file : open();
      }
      stream.send(batch, backlog);
    } catch (FlightException e) {
      throw explained(e);
    }
    batch.clear();
  }

  private PutCommand.Builder command() {
    return PutCommand.newBuilder()
        .setProtocol(Protocol.of(shuffle))
        .setShuffle(shuffle)
        .setOutput(output)
        .setPartitions(partitions)
        .setCodec("none");
  }

  private Backoff backoff() {
    return new Backoff(conf.retryWindow());
  }

  /** Has the master pick the worker, once per output; while it cannot be reached, again: it may be restarting. */
  private void place(Backoff backoff) throws IOException {
    while (worker == null) {
      try {
        worker = connections.place(shuffle, executor().host(), conf.near(), failed);
      } catch (FlightException e) {
        againAfter(e, backoff, "{}; asking again where map {} goes");
      }
    }
  }

  /** A file of the worker that the master picked, to write the output to; null when that one lies elsewhere, or lends none. */
  private LocalFileWriter borrow() throws IOException {
    place(backoff());
    return LocalFileWriter.borrow(
        localFiles, worker, command().build(),
        new LocalFileWriter.Patience(conf.ioTimeout(), conf.retryWindow(), context::killTaskIfInterrupted));
  }

  /**
   * Tries something at the worker that the master picks. One that cannot be reached is the last choice for the next
   * try, until the retry window closes: it may be restarting.
   */
  private <T> T atAWorker(InlinePush.Try<T> tried, String again) throws IOException {
    Backoff backoff = backoff();
    while (true) {
      place(backoff);
      try {
        return tried.at(worker);
      } catch (FlightException e) {
        failed.add(worker.id());
        worker = null;
        againAfter(e, backoff, again);
      }
    }
  }

  /** Returns after a pause if what failed may be tried again. */
  private void againAfter(FlightException failure, Backoff backoff, String again) throws IOException {
    if (!failure.passing() || !backoff.mayGoOn()) {
      throw explained(failure);
    }
    LOG.info(again, failure.getMessage(), output.getMap());
    backoff.pause("opening the push of map " + output.getMap());
    context.killTaskIfInterrupted();
  }

  private PutStream open() throws IOException {
    PutCommand.Builder command = command();
    return atAWorker(
        at ->
            PutStream.open(
                connections.channel(at), at, command, conf.connectTimeout(), conf.ioTimeout(),
                context::killTaskIfInterrupted),
        "{}; opening the push of map {} again");
  }

  /** Of all there is, in one request. */
  private InlinePush inline() {
    return new InlinePush(
        localFiles, command().build(), put -> atAWorker(put, "{}; putting map {} again"), conf.connectTimeout(),
        conf.ioTimeout(), context::killTaskIfInterrupted);
  }

  /**
   * What the server refuses for ever, because it has no such shuffle any more, is no failure of the task: Spark submits
   * its stage again, which serializes the shuffle's handle and so registers it anew.
   */
  private FlightException explained(FlightException failure) {
    if (failure.code() == ErrorCode.STORAGE_FULL && worker != null) {
      connections.failed(worker);
    }
    if (failure.shuffleIsGone()) {
      context.setFetchFailed(
          new MetadataFetchFailedException((int) shuffle.getShuffle(), context.partitionId(), failure.getMessage()));
    }
    return failure;
  }

  /** Returns when the worker has made the output visible. */
  public void commit() throws IOException {
    try {
      Committed answer = sendRest();
      if (answer != null) {
        committedAt = checked(answer);
      }
    } catch (FlightException e) {
      throw explained(e);
    }
    committed = true;
    batch = null;
  }

  /** Null when there is nothing to send. */
  private Committed sendRest() throws IOException {
    if (batch != null) {
      batch.endBlock(partition, totals);
      if (stream == null) { // all of it fits into one message: that is cheaper than a file
        stream = batch.size() <= InlinePush.LARGEST ? inline() : open();
      }
      if (batch.blocks() > 0) {
        stream.send(batch, 0);
      }
    }
    return stream == null ? null : stream.commit(totals.toMessage());
  }

  private String checked(Committed answer) throws FlightException {
    if (!answer.getOutput().equals(output)) {
      throw FlightException.broken(
          worker.toString(),
          "map " + output.getMap() + " attempt " + answer.getOutput().getAttempt() + " was committed before", null);
    }
    return answer.getWorker().isEmpty() ? worker.id() : answer.getWorker();
  }

  /** Where readers find the output. */
  public BlockManagerId location() {
    if (!committed) {
      throw new IllegalStateException("map " + output.getMap() + " of shuffle " + shuffle.getShuffle() + " is not committed");
    }
    return committedAt == null
        ? MapLocation.ofEmpty(output.getMap(), executor())
        : MapLocation.ofMap(committedAt, output.getMap(), executor());
  }

  private static BlockManagerId executor() {
    return SparkEnv.get().blockManager().blockManagerId();
  }

  /** The map output that was committed: nothing if it was not. To be asked for at the end of the task, before {@link #close}. */
  public Traffic traffic() {
    if (!committed) {
      return Traffic.NONE;
    }
    ShuffleWriteMetrics written = context.taskMetrics().shuffleWriteMetrics();
    long waited = stream == null ? 0 : stream.creditWaitNanos();
    return Traffic.written(
        committedAt == null ? "" : committedAt, stream instanceof LocalFileWriter, written.bytesWritten(),
        written.recordsWritten(), waited);
  }

  /** Gives up what is not committed; does nothing after a commit. */
  @Override
  public void close() {
    if (stream != null && !committed) {
      stream.abort();
    }
    stream = null;
    batch = null;
  }
}
