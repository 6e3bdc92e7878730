package org.apache.spark.shuffle.flight.net;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What one reduce task has under way at the workers. {@link #close} breaks off all of it. */
public final class BlockFetcher implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(BlockFetcher.class);

  private final Connections connections;
  private final HandOver handOver;
  private final ShuffleKey shuffle;
  private final Duration ioTimeout;
  private final Duration retryWindow;
  private final Set<BlockFetch> running = ConcurrentHashMap.newKeySet();
  private volatile boolean closed;

  /**
   * @param ioTimeout how long a pull may be silent
   * @param retryWindow how long a broken pull is repeated
   */
  public BlockFetcher(HandOver handOver, ShuffleKey shuffle, Duration ioTimeout, Duration retryWindow) {
    this.connections = handOver.connections();
    this.handOver = handOver;
    this.shuffle = shuffle;
    this.ioTimeout = ioTimeout;
    this.retryWindow = retryWindow;
  }

  /**
   * Fetches {@code wanted} from the files of {@code worker} or with one pull, and answers to {@code listener}, on other threads.
   *
   * @param files when given, blocks are streamed to files of it instead of memory
   */
  public void fetch(
      WorkerAddress worker, List<WantedBlock> wanted, BlockFetchingListener listener, DownloadFileManager files,
      TransportConf conf) {
    if (files != null) {
      pull(worker, wanted, listener, () -> new FileSink(files, conf));
      return;
    }
    LocatedFetch located =
        new LocatedFetch(this, worker, wanted, listener, left -> pull(worker, left, listener, MemorySink::new));
    connections.pool().execute(located::run);
  }

  private void pull(
      WorkerAddress worker, List<WantedBlock> wanted, BlockFetchingListener listener, Supplier<BlockSink> sinks) {
    BlockFetch fetch = new BlockFetch(this, worker, wanted, listener, sinks);
    running.add(fetch);
    fetch.start();
  }

  @Override
  public void close() {
    closed = true;
    running.forEach(BlockFetch::cancel);
  }

  /** Tells the master, in the background: a courtesy that must not delay the reader's failure. */
  void reportLost(List<MapAttempt> outputs, String reason) {
    connections.pool().execute(
        () -> {
          try {
            connections.control().reportLost(shuffle, outputs, reason);
          } catch (IOException e) {
            LOG.info("could not report {} lost map outputs: {}", outputs.size(), e.getMessage());
          }
        });
  }

  void done(BlockFetch fetch) {
    running.remove(fetch);
  }

  boolean closed() {
    return closed;
  }

  HandOver handOver() {
    return handOver;
  }

  Connections connections() {
    return connections;
  }

  ShuffleKey shuffle() {
    return shuffle;
  }

  Duration ioTimeout() {
    return ioTimeout;
  }

  Duration retryWindow() {
    return retryWindow;
  }
}
