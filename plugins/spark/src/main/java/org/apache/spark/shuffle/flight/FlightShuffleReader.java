package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.Aggregator;
import org.apache.spark.InterruptibleIterator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.internal.config.package$;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.flight.blocks.BlocksByWorker;
import org.apache.spark.shuffle.flight.blocks.FetchWindows;
import org.apache.spark.shuffle.flight.blocks.MapLocation;
import org.apache.spark.shuffle.flight.fetch.BlockFetcher;
import org.apache.spark.shuffle.flight.metrics.ReadTraffic;
import org.apache.spark.shuffle.flight.read.FlightBlockStoreClient;
import org.apache.spark.shuffle.flight.read.OpenReader;
import org.apache.spark.shuffle.flight.read.WindowedBlocks;
import org.apache.spark.shuffle.flight.rows.RowPath;
import org.apache.spark.shuffle.flight.rows.RowReader;
import org.apache.spark.shuffle.flight.version.SparkVersion;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockFetcherIterator;
import org.apache.spark.storage.ShuffleBlockId;
import org.apache.spark.util.CompletionIterator$;
import org.apache.spark.util.SystemClock;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.Product2;
import scala.Some;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.collection.mutable.ArrayBuffer;
import scala.runtime.BoxedUnit;

/**
 * Spark's {@code BlockStoreShuffleReader} with another client under its fetcher. That class takes its client from the
 * {@code BlockManager}, so it cannot be used as it is: this class follows its {@code read}, step by step.
 */
final class FlightShuffleReader<K, C> implements ShuffleReader<K, C> {
  private static final package$ CONFIG = package$.MODULE$;

  private final ShuffleDependency<K, Object, C> dependency;
  private final TaskContext context;
  private final ShuffleReadMetricsReporter metrics;
  private final SparkEnv env;
  private final SparkConf conf;
  private final FlightExecutor executor;
  private final BlocksByWorker blocks;
  private final BlockFetcher fetcher;
  private final boolean batchFetch;
  private final RowPath rows;
  private final FlightShuffleHandle handle;
  private final ReadTraffic traffic = new ReadTraffic();

  /**
   * @param partition the only one that is read, from all maps; -1 when something else is read
   * @param mayBatchFetch whether the task can read several partitions of a map as one block
   */
  @SuppressWarnings("unchecked")
  FlightShuffleReader(
      FlightShuffleHandle handle, BlocksByWorker blocks, TaskContext context, ShuffleReadMetricsReporter metrics,
      FlightExecutor executor, int partition, boolean mayBatchFetch) {
    this.dependency = (ShuffleDependency<K, Object, C>) handle.inner().dependency();
    this.handle = handle;
    this.context = context;
    this.metrics = metrics;
    this.env = SparkEnv.get();
    this.conf = env.conf();
    this.executor = executor;
    this.blocks = blocks;
    this.fetcher = executor.fetcher(handle, blocks, partition);
    this.rows = handle.rows();
    this.batchFetch = mayBatchFetch && canBatchFetch();
  }

  /** As {@code BlockStoreShuffleReader.fetchContinuousBlocksInBatch}: streams can be concatenated as they are. */
  private boolean canBatchFetch() {
    boolean concatenable =
        rows != null
            || !this.<Boolean>option(CONFIG.SHUFFLE_COMPRESS())
            || CompressionCodec$.MODULE$.supportsConcatenationOfSerializedStreams(
                CompressionCodec$.MODULE$.createCodec(conf));
    return dependency.serializer().supportsRelocationOfSerializedObjects()
        && concatenable
        && !this.<Boolean>option(CONFIG.SHUFFLE_USE_OLD_FETCH_PROTOCOL())
        && !this.<Boolean>option(CONFIG.IO_ENCRYPTION_ENABLED());
  }

  @Override
  public Iterator<Product2<K, C>> read() {
    Iterator<Product2<K, Object>> records = new InterruptibleIterator<>(context, counted(deserialized(fetched())));
    Iterator<Product2<K, C>> result = combinedAndSorted(records);
    // An aggregator or a sorter has consumed the interruptible iterator: its result has to be interruptible too.
    return result instanceof InterruptibleIterator ? result : new InterruptibleIterator<>(context, result);
  }

  private WindowedBlocks fetched() {
    int requests = this.<Integer>option(CONFIG.REDUCER_MAX_REQS_IN_FLIGHT());
    FetchWindows windows =
        blocks.windows(
            FetchWindows.Limits.of(
                maxBytesInFlight(), requests, this.<Integer>option(CONFIG.REDUCER_MAX_BLOCKS_IN_FLIGHT_PER_ADDRESS())));
    OpenReader open = new OpenReader(handle.shuffleId(), handle::count, blocks, fetcher, traffic);
    return open.watch(new WindowedBlocks(() -> window(windows.next()), requests > 1, open::done), context);
  }

  private long maxBytesInFlight() {
    return this.<Long>option(CONFIG.REDUCER_MAX_SIZE_IN_FLIGHT()) << 20;
  }

  private Optional<WindowedBlocks.Window> window(Map<String, Seq<Tuple3<BlockId, Object, Object>>> window) {
    if (window.isEmpty()) {
      return Optional.empty();
    }
    FlightBlockStoreClient client = new FlightBlockStoreClient(fetcher, blocks, traffic, executor.transport(conf));
    ArrayBuffer<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> byAddress = new ArrayBuffer<>();
    window.forEach((worker, its) -> byAddress.$plus$eq(new Tuple2<>(MapLocation.ofWorker(worker), its)));
    ShuffleBlockFetcherIterator fetched = fetched(client, byAddress.iterator());
    client.start();
    return Optional.of(new WindowedBlocks.Window(client, fetched, fetched.toCompletionIterator()));
  }

  private ShuffleBlockFetcherIterator fetched(
      FlightBlockStoreClient client,
      Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> byAddress) {
    return new ShuffleBlockFetcherIterator(
            context,
            client,
            env.blockManager(),
            env.mapOutputTracker(),
            byAddress,
            (block, stream) -> rows != null ? stream : env.serializerManager().wrapStream(block, stream),
            maxBytesInFlight(),
            this.<Integer>option(CONFIG.REDUCER_MAX_REQS_IN_FLIGHT()),
            this.<Integer>option(CONFIG.REDUCER_MAX_BLOCKS_IN_FLIGHT_PER_ADDRESS()),
            this.<Long>option(CONFIG.MAX_REMOTE_BLOCK_SIZE_FETCH_TO_MEM()),
            this.<Integer>option(CONFIG.SHUFFLE_MAX_ATTEMPTS_ON_NETTY_OOM()),
            this.<Boolean>option(CONFIG.SHUFFLE_DETECT_CORRUPT()),
            this.<Boolean>option(CONFIG.SHUFFLE_DETECT_CORRUPT_MEMORY()),
            false, // Spark's checksum, which tells causes of corruption apart: ours have been verified
            this.<String>option(CONFIG.SHUFFLE_CHECKSUM_ALGORITHM()),
            traffic.counting(metrics),
            batchFetch,
            new SystemClock());
  }

  @SuppressWarnings("unchecked")
  private Iterator<Product2<K, Object>> deserialized(WindowedBlocks fetched) {
    if (rows != null) {
      return (Iterator<Product2<K, Object>>) (Iterator<?>)
          new RowReader(fetched, rows.fields(), (block, why) -> failed(fetched.fetched(), block, why));
    }
    SerializerInstance serializer = dependency.serializer().newInstance();
    return fetched.flatMap(
        block -> (Iterator<Product2<K, Object>>) (Iterator<?>) serializer.deserializeStream(block._2()).asKeyValueIterator());
  }

  /** As Spark fails the task for a stream that it cannot expand: so that the map runs again. */
  private void failed(ShuffleBlockFetcherIterator fetched, BlockId block, IOException why) {
    long map = block instanceof ShuffleBlockBatchId batch ? batch.mapId() : ((ShuffleBlockId) block).mapId();
    fetched.throwFetchFailedException(
        block, blocks.indexes().get(map), blocks.locations().get(map), why, Option.empty());
  }

  private Iterator<Product2<K, Object>> counted(Iterator<Product2<K, Object>> records) {
    Iterator<Product2<K, Object>> counting =
        records.map(
            entry -> {
              metrics.incRecordsRead(1);
              traffic.countRecord();
              return entry;
            });
    return CompletionIterator$.MODULE$.apply(
        counting,
        () -> {
          context.taskMetrics().mergeShuffleReadMetrics();
          return BoxedUnit.UNIT;
        });
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private Iterator<Product2<K, C>> combinedAndSorted(Iterator<Product2<K, Object>> records) {
    Option<Aggregator<K, Object, C>> aggregator = dependency.aggregator();
    Iterator result = records;
    if (dependency.keyOrdering().isDefined()) {
      Option<Aggregator> inSorter = (Option) aggregator;
      if (aggregator.isDefined() && dependency.mapSideCombine()) {
        inSorter = new Some<>(ofCombiners(aggregator.get()));
      }
      ExternalSorter sorter =
          SparkVersion.running()
              .sorter(context, (Option) inSorter, dependency.keyOrdering().get(), dependency.serializer());
      result = sorter.insertAllAndUpdateMetrics(result);
    } else if (aggregator.isDefined()) {
      result =
          dependency.mapSideCombine()
              ? aggregator.get().combineCombinersByKey(result, context)
              : aggregator.get().combineValuesByKey(result, context);
    }
    return result;
  }

  /** The map side has combined values already: the reader receives combiners. */
  private Aggregator<K, C, C> ofCombiners(Aggregator<K, Object, C> aggregator) {
    return new Aggregator<>(combiner -> combiner, aggregator.mergeCombiners(), aggregator.mergeCombiners());
  }

  @SuppressWarnings("unchecked")
  private <T> T option(ConfigEntry<?> entry) {
    return (T) conf.get(entry);
  }
}
