package org.apache.spark.shuffle.flight.read;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.blocks.BlocksByWorker;
import org.apache.spark.shuffle.flight.blocks.MapLocation;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.fetch.BlockFetcher;
import org.apache.spark.shuffle.flight.metrics.ReadTraffic;

/**
 * What Spark's {@code ShuffleBlockFetcherIterator} of one window fetches with: a request becomes a pull.
 *
 * <p>Spark makes its requests in random order when the iterator is made. They are gathered until {@link #start}, sent in the
 * order of their maps, and answered in that order, however many are under way at once. Used by the task's thread.
 */
public final class FlightBlockStoreClient extends BlockStoreClient {
  private record Request(
      String worker, List<WantedBlock> blocks, BlockFetchingListener listener, DownloadFileManager files) {}

  private final BlockFetcher fetcher;
  private final BlocksByWorker blocks;
  private final ReadTraffic traffic;
  private List<Request> gathered = new ArrayList<>(); // null: requests are sent at once
  private OrderedBlocks order;

  /**
   * @param blocks of the reader: the numbers of their outputs, and their order
   * @param traffic counts what it gives to Spark
   */
  public FlightBlockStoreClient(BlockFetcher fetcher, BlocksByWorker blocks, ReadTraffic traffic, TransportConf conf) {
    this.fetcher = fetcher;
    this.blocks = blocks;
    this.traffic = traffic;
    this.transportConf = conf;
  }

  /** @param execId a worker, in the form of {@link MapLocation#ofWorker} */
  @Override
  public void fetchBlocks(
      String host, int port, String execId, String[] blockIds, BlockFetchingListener listener,
      DownloadFileManager downloadFileManager) {
    List<WantedBlock> wanted = Stream.of(blockIds).map(id -> WantedBlock.parse(id, blocks::output)).toList();
    String worker = MapLocation.worker(execId);
    Request request = new Request(worker, wanted, traffic.counting(worker, listener), downloadFileManager);
    if (gathered == null) {
      send(request, request.listener()); // a block is wanted once more
    } else {
      gathered.add(request);
    }
  }

  /** Sends what was gathered. */
  public void start() {
    List<Request> requests = gathered;
    gathered = null;
    requests.sort(Comparator.comparingLong(request -> place(request.blocks().get(0))));
    Stream<WantedBlock> all = requests.stream().flatMap(request -> request.blocks().stream());
    order =
        new OrderedBlocks(
            (requests.size() == 1 ? all : all.sorted(Comparator.comparingLong(this::place)))
                .map(WantedBlock::blockId).toList());
    requests.forEach(request -> send(request, order.listener(request.listener())));
  }

  private void send(Request request, BlockFetchingListener listener) {
    fetcher.fetch(request.worker(), request.blocks(), listener, request.files(), transportConf);
  }

  /** In the order of the maps, and for each of the partitions. */
  private long place(WantedBlock block) {
    return (long) blocks.indexes().get(WantedBlock.mapId(block.blockId())) << Integer.SIZE | block.firstPartition();
  }

  /** Frees what waits for its turn. */
  @Override
  public void close() {
    if (order != null) {
      order.close();
    }
  }
}
