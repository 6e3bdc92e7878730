package org.apache.spark.shuffle.flight;

import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.flight.blocks.BlocksByWorker;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.conf.SecurityConf;
import org.apache.spark.shuffle.flight.driver.FlightDriverComponents;
import org.apache.spark.shuffle.flight.metrics.TrafficCounter;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.push.DataPusher;
import org.apache.spark.shuffle.flight.rows.RowPath;
import org.apache.spark.shuffle.flight.rows.TaskMemory;
import org.apache.spark.shuffle.flight.version.BuildInfo;
import org.apache.spark.shuffle.flight.version.SelfTest;
import org.apache.spark.shuffle.flight.version.SparkVersion;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO;

/**
 * {@code spark.shuffle.manager}. Set {@code spark.shuffle.sort.io.plugin.class} to {@link FlightShuffleDataIO} beside it.
 *
 * <p>Two of Spark's {@code SortShuffleManager} do the work. Both have the writers; the output of one goes to
 * {@link FlightShuffleDataIO}, that of the other to local disk, for the shuffles that fall back. A shuffle's handle says
 * which of them it belongs to.
 *
 * <p>It is a {@code SortShuffleManager} itself for one reason: {@code ShuffleExchangeExec.needToCopyObjectsBeforeShuffle}
 * copies every row for a manager of any other class, and Spark's own writers do not need that. Nothing of the superclass
 * is used.
 */
public final class FlightShuffleManager extends SortShuffleManager {
  private static final String DATA_IO = "spark.shuffle.sort.io.plugin.class";

  private record Sorts(SortShuffleManager pushing, SortShuffleManager fallback) {}

  private final SparkConf conf;
  private final FlightExecutor executor;
  private final SelfTest selfTest;
  private Sorts sorts;

  /** The constructor Spark looks for. */
  public FlightShuffleManager(SparkConf conf) {
    this(conf, BuildInfo.read().checkFor(BuildInfo.runningSpark(), conf));
  }

  private FlightShuffleManager(SparkConf conf, BuildInfo build) {
    super(conf);
    if (!conf.get(DATA_IO, "").equals(FlightShuffleDataIO.class.getName())) {
      throw new IllegalArgumentException(
          getClass().getName() + " needs " + DATA_IO + "=" + FlightShuffleDataIO.class.getName()
              + ": the driver registers the application there");
    }
    FlightConf parsed = FlightConf.parse(conf);
    this.executor =
        new FlightExecutor(
            parsed, build.client(), () -> SecurityConf.serversOfExecutor(conf, parsed.servers()),
            () -> parsed.security().ofExecutor(conf));
    this.conf = conf;
    this.selfTest = SelfTest.of(build, BuildInfo.runningSpark());
  }

  /**
   * Spark's managers, made with the first shuffle. On the driver this object is made before the application has an id, and
   * their copies of the configuration have to hold it.
   */
  private synchronized Sorts sorts() {
    if (sorts == null) {
      SparkConf local = conf.clone().set(DATA_IO, LocalDiskShuffleDataIO.class.getName());
      sorts = new Sorts(new SortShuffleManager(executor.named(conf)), new SortShuffleManager(local));
    }
    return sorts;
  }

  @Override
  public <K, V, C> ShuffleHandle registerShuffle(int shuffleId, ShuffleDependency<K, V, C> dependency) {
    SparkContext context = dependency.rdd().sparkContext();
    FlightDriverComponents driver = (FlightDriverComponents) context.shuffleDriverComponents();
    selfTest.run(context);
    int partitions = dependency.partitioner().numPartitions();
    int maps = dependency.rdd().getNumPartitions();
    driver.report(context);
    if (driver.keeps(dependency)) {
      return sorts().fallback().registerShuffle(shuffleId, dependency);
    }
    TrafficCounter counter = driver.counter(shuffleId, partitions, maps);
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(shuffleId, partitions, maps);
    driver.watch(context);
    BaseShuffleHandle<?, ?, ?> inner = (BaseShuffleHandle<?, ?, ?>) sorts().pushing().registerShuffle(shuffleId, dependency);
    long memory = Math.min(executor.rowMemory(), TaskMemory.of(conf, Runtime.getRuntime().maxMemory()));
    RowPath rows = RowPath.of(dependency, conf, (int) memory);
    if (rows != null) {
      SparkVersion.running().omitRowChecksums(dependency);
    }
    return new FlightShuffleHandle(inner, partitions, rows == null ? 0 : rows.bufferSize(), counter, registered);
  }

  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    if (handle instanceof FlightShuffleHandle flight) {
      DataPusher push = executor.open(flight, context);
      @SuppressWarnings("unchecked")
      ShuffleDependency<K, V, ?> dependency = (ShuffleDependency<K, V, ?>) flight.inner().dependency();
      RowPath rows = flight.rows();
      if (rows != null) {
        return new FlightRowWriter<>(dependency, rows, executor.packRows(), mapId, push, context, metrics);
      }
      return new FlightShuffleWriter<>(sorts().pushing().getWriter(flight.inner(), mapId, context, metrics), push);
    }
    // It may have fallen back when all but its handle was on its way to this task already.
    SparkVersion.running().restoreRowChecksums(((BaseShuffleHandle<?, ?, ?>) handle).dependency());
    return sorts().fallback().getWriter(handle, mapId, context, metrics);
  }

  @Override
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle, int startMapIndex, int endMapIndex, int startPartition, int endPartition,
      TaskContext context, ShuffleReadMetricsReporter metrics) {
    if (handle instanceof FlightShuffleHandle flight) {
      BlocksByWorker blocks =
          BlocksByWorker.of(
              SparkEnv.get().mapOutputTracker(), handle.shuffleId(), startMapIndex, endMapIndex, startPartition,
              endPartition);
      boolean one = startMapIndex == 0 && endMapIndex == Integer.MAX_VALUE && endPartition == startPartition + 1;
      boolean mayBatchFetch = SortShuffleManager.canUseBatchFetch(startPartition, endPartition, context);
      return new FlightShuffleReader<>(
          flight, blocks, context, metrics, executor, one ? startPartition : -1, mayBatchFetch);
    }
    return sorts().fallback().getReader(handle, startMapIndex, endMapIndex, startPartition, endPartition, context, metrics);
  }

  /** Frees what this process keeps of a shuffle; the server's data goes with {@code removeShuffle} on the driver. */
  @Override
  public boolean unregisterShuffle(int shuffleId) {
    executor.ended(shuffleId);
    sorts().pushing().unregisterShuffle(shuffleId);
    return sorts().fallback().unregisterShuffle(shuffleId);
  }

  /** Serves the local blocks of shuffles that fell back; the others have none. */
  @Override
  public IndexShuffleBlockResolver shuffleBlockResolver() {
    return sorts().fallback().shuffleBlockResolver();
  }

  @Override
  public synchronized void stop() {
    executor.close();
    if (sorts != null) {
      sorts.pushing().stop();
      sorts.fallback().stop();
    }
  }
}
