package org.apache.spark.shuffle.flight;

import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.checksum.Cause;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.net.BlockFetcher;
import org.apache.spark.shuffle.flight.net.WantedBlock;
import org.apache.spark.shuffle.flight.net.WorkerAddress;

/** What Spark's {@code ShuffleBlockFetcherIterator} of one reduce task fetches with: a request becomes a pull. */
final class FlightBlockStoreClient extends BlockStoreClient {
  private final BlockFetcher fetcher;
  private final FlightShuffleHandle handle;

  FlightBlockStoreClient(BlockFetcher fetcher, FlightShuffleHandle handle, TransportConf conf) {
    this.fetcher = fetcher;
    this.handle = handle;
    this.transportConf = conf;
  }

  /** @param execId a worker, in the form of {@link MapLocation#ofWorker} */
  @Override
  public void fetchBlocks(
      String host, int port, String execId, String[] blockIds, BlockFetchingListener listener,
      DownloadFileManager downloadFileManager) {
    List<WantedBlock> wanted = Stream.of(blockIds).map(WantedBlock::parse).toList();
    fetcher.fetch(worker(execId), wanted, listener, downloadFileManager, transportConf);
  }

  private WorkerAddress worker(String execId) {
    String id = MapLocation.worker(execId);
    if (!id.equals(handle.worker().id())) {
      throw new IllegalStateException("shuffle " + handle.shuffleId() + " has no worker " + id);
    }
    return handle.worker();
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
