package org.apache.spark.shuffle.flight.local;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads blocks of one shuffle from the files of workers on this host.
 *
 * @param closed whether the reader is gone: nothing more is read then
 */
public record LocalReader(LocalFileAccess localFiles, ShuffleKey shuffle, BooleanSupplier closed) {
  private static final Logger LOG = LoggerFactory.getLogger(LocalReader.class);

  /**
   * Answers with all of {@code wanted} that {@code worker} has on this host, once it has said where. Blocks.
   *
   * @param wire takes the blocks that were not answered, last
   */
  public void fetch(
      WorkerAddress worker, List<WantedBlock> wanted, BlockFetchingListener listener, Consumer<List<WantedBlock>> wire) {
    new LocalFetch(this, worker, wanted, listener, wire).run();
  }

  /**
   * Answers with those of {@code wanted} whose places in files are known.
   *
   * @param most bytes that are read
   * @return the others, of which the listener has heard nothing
   */
  public List<WantedBlock> fromKnownFiles(String worker, List<WantedBlock> wanted, long most, BlockFetchingListener listener) {
    List<WantedBlock> left = new ArrayList<>();
    long room = most;
    for (List<WantedBlock> run : WantedBlock.runs(wanted)) {
      long read = fromKnownFile(worker, run, room, listener);
      room -= Math.max(0, read);
      if (read < 0) {
        left.addAll(run);
      }
    }
    return left;
  }

  /** The bytes that were read; -1 when the listener has heard nothing. */
  private long fromKnownFile(String worker, List<WantedBlock> run, long most, BlockFetchingListener listener) {
    long map = run.get(0).map();
    FileIndexCache.Known known = localFiles.files().find(shuffle, map, worker);
    if (known == null || closed.getAsBoolean()) {
      return -1;
    }
    ByteBuffer rows = known.index().between(run.get(0).firstPartition(), run.get(run.size() - 1).endPartition());
    try {
      long read = FileBlocks.give(run, known.path(), rows, most, listener);
      if (read >= 0) {
        localFiles.read(worker, shuffle, rows.limit() / FileIndex.ROW_BYTES, read);
      }
      return read;
    } catch (IOException e) {
      LOG.debug("{} is asked for: {}", run.get(0).blockId(), e.toString());
      localFiles.files().forget(shuffle, map, known);
      return -1;
    }
  }
}
