package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.checksum.Cause;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.net.BlockFetcher;
import org.apache.spark.shuffle.flight.net.Connections;
import org.apache.spark.shuffle.flight.net.FlightException;
import org.apache.spark.shuffle.flight.net.WantedBlock;
import org.apache.spark.shuffle.flight.net.WorkerAddress;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What Spark's {@code ShuffleBlockFetcherIterator} of one reduce task fetches with: a request becomes a pull. */
final class FlightBlockStoreClient extends BlockStoreClient {
  private static final Logger LOG = LoggerFactory.getLogger(FlightBlockStoreClient.class);

  private final BlockFetcher fetcher;
  private final Connections connections;
  private final FlightShuffleHandle handle;

  FlightBlockStoreClient(
      BlockFetcher fetcher, Connections connections, FlightShuffleHandle handle, TransportConf conf) {
    this.fetcher = fetcher;
    this.connections = connections;
    this.handle = handle;
    this.transportConf = conf;
  }

  /** @param execId a worker, in the form of {@link MapLocation#ofWorker} */
  @Override
  public void fetchBlocks(
      String host, int port, String execId, String[] blockIds, BlockFetchingListener listener,
      DownloadFileManager downloadFileManager) {
    List<WantedBlock> wanted = Stream.of(blockIds).map(WantedBlock::parse).toList();
    WorkerAddress worker;
    try {
      worker = find(MapLocation.worker(execId));
    } catch (IOException e) {
      for (String block : blockIds) {
        listener.onBlockFetchFailure(block, e);
      }
      return;
    }
    fetcher.fetch(worker, wanted, listener, downloadFileManager, transportConf);
  }

  /** Asks the master about a worker that this executor has not met. */
  private WorkerAddress find(String id) throws IOException {
    try {
      return connections.find(id)
          .orElseThrow(() -> new IOException("worker " + id + " is gone, the master has given it up"));
    } catch (FlightException e) {
      if (!e.passing() || !id.equals(handle.worker().id())) {
        throw e;
      }
      LOG.info("{}; trying the last known address of {}", e.getMessage(), id);
      return connections.assume(handle.worker());
    }
  }

  /** Every block's crc32c was right when it arrived, so what Spark cannot read was written that way. */
  @Override
  public Cause diagnoseCorruption(
      String host, int port, String execId, int shuffleId, long mapId, int reduceId, long checksum, String algorithm) {
    return Cause.UNKNOWN_ISSUE;
  }

  @Override
  public void close() {
    fetcher.close();
  }
}
