package org.apache.spark.shuffle.flight;

import java.util.List;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.net.BlockFetcher;
import org.apache.spark.shuffle.flight.net.WantedBlock;

/** What Spark's {@code ShuffleBlockFetcherIterator} of one reduce task fetches with: a request becomes a pull. */
final class FlightBlockStoreClient extends BlockStoreClient {
  private final BlockFetcher fetcher;
  private final LongUnaryOperator outputs;

  /** @param outputs the number at its worker of a map's output, by map id */
  FlightBlockStoreClient(BlockFetcher fetcher, LongUnaryOperator outputs, TransportConf conf) {
    this.fetcher = fetcher;
    this.outputs = outputs;
    this.transportConf = conf;
  }

  /** @param execId a worker, in the form of {@link MapLocation#ofWorker} */
  @Override
  public void fetchBlocks(
      String host, int port, String execId, String[] blockIds, BlockFetchingListener listener,
      DownloadFileManager downloadFileManager) {
    List<WantedBlock> wanted = Stream.of(blockIds).map(id -> WantedBlock.parse(id, outputs)).toList();
    fetcher.fetch(MapLocation.worker(execId), wanted, listener, downloadFileManager, transportConf);
  }

  @Override
  public void close() {
    fetcher.close();
  }
}
