package org.apache.spark.shuffle.flight;

import java.util.Optional;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.conf.SecurityConf;
import org.apache.spark.shuffle.flight.driver.FlightDriverComponents;
import org.apache.spark.shuffle.flight.driver.ShuffleRegistration;
import org.apache.spark.shuffle.flight.realtime.FlightRelayReader;
import org.apache.spark.shuffle.flight.realtime.FlightRelayWriter;
import org.apache.spark.shuffle.flight.realtime.RelayHandle;
import org.apache.spark.shuffle.flight.version.BuildInfo;
import org.apache.spark.shuffle.flight.version.SelfTest;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import org.apache.spark.sql.execution.UnsafeRowSerializer;

/**
 * {@code spark.shuffle.manager.incremental}: the shuffles of real-time mode, in which both stages run at once, pass through
 * the memory of workers (docs/protocol.md, Relay), which share its partitions. Beside {@link FlightShuffleManager}, whose
 * {@link FlightShuffleDataIO} registers the application.
 *
 * <p>It extends Spark's own manager because Spark makes an output tracker for that class only; a shuffle that falls back is
 * the superclass's, and its handle says so.
 */
public final class FlightPipelinedShuffleManager extends StreamingShuffleManager {
  private final SparkConf conf;
  private final FlightConf options;
  private final String client;
  private Connections connections;
  private boolean stopped;
  private volatile FlightDriverComponents driver;

  /** The constructor Spark looks for. */
  public FlightPipelinedShuffleManager(SparkConf conf) {
    this.conf = conf;
    this.options = FlightConf.parse(conf);
    String running = BuildInfo.runningSpark();
    BuildInfo build = BuildInfo.read().checkFor(running, conf);
    SelfTest.of(build, running).link(FlightPipelinedShuffleManager.class);
    this.client = build.client();
  }

  @Override
  public <K, V, C> ShuffleHandle registerShuffle(int shuffleId, ShuffleDependency<K, V, C> dependency) {
    if (!(dependency.rdd().sparkContext().shuffleDriverComponents() instanceof FlightDriverComponents components)) {
      throw new IllegalArgumentException(
          getClass().getName() + " needs spark.shuffle.sort.io.plugin.class=" + FlightShuffleDataIO.class.getName()
              + ": the driver registers the application there (`flight-shuffle spark-conf --real-time` prints all settings)");
    }
    int partitions = dependency.partitioner().numPartitions();
    int maps = dependency.rdd().getNumPartitions();
    boolean relayed = isOfRows(dependency) && !components.keeps(dependency);
    Optional<ShuffleRegistration.Registered> registered =
        relayed ? components.register(shuffleId, partitions, maps, true) : Optional.empty();
    if (registered.isEmpty()) {
      return super.registerShuffle(shuffleId, dependency);
    }
    driver = components;
    return new RelayHandle<>(shuffleId, dependency, registered.get().key(), maps, registered.get().relays());
  }

  /** Whether this is an exchange of SQL: rows, of which nothing is combined or sorted on the way. */
  private static boolean isOfRows(ShuffleDependency<?, ?, ?> dependency) {
    return dependency.serializer() instanceof UnsafeRowSerializer
        && dependency.aggregator().isEmpty()
        && dependency.keyOrdering().isEmpty();
  }

  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    if (handle instanceof RelayHandle<?, ?, ?> relay) {
      @SuppressWarnings("unchecked")
      RelayHandle<K, V, ?> typed = (RelayHandle<K, V, ?>) relay;
      return new FlightRelayWriter<>(connections(), options, typed, mapId, context, metrics);
    }
    return super.getWriter(handle, mapId, context, metrics);
  }

  @Override
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle, int startMapIndex, int endMapIndex, int startPartition, int endPartition,
      TaskContext context, ShuffleReadMetricsReporter metrics) {
    if (handle instanceof RelayHandle<?, ?, ?> relay) {
      if (endPartition != startPartition + 1) {
        throw new IllegalArgumentException(
            "partitions [" + startPartition + ", " + endPartition + ") of a pipelined shuffle for one task: it may read one");
      }
      @SuppressWarnings("unchecked")
      RelayHandle<K, ?, C> typed = (RelayHandle<K, ?, C>) relay;
      return new FlightRelayReader<>(connections(), options, typed, startPartition, context, metrics);
    }
    return super.getReader(handle, startMapIndex, endMapIndex, startPartition, endPartition, context, metrics);
  }

  /** On the driver, removes the shuffle's data at the server as well. */
  @Override
  public boolean unregisterShuffle(int shuffleId) {
    if (driver != null) {
      driver.removeShuffle(shuffleId, false);
    }
    return super.unregisterShuffle(shuffleId);
  }

  private synchronized Connections connections() {
    if (stopped) {
      throw new IllegalStateException("this executor's pipelined shuffle manager is stopped");
    }
    if (connections == null) {
      connections =
          new Connections(
              SecurityConf.serversOfExecutor(conf, options.servers()), options.connectTimeout(), client,
              options.security().ofExecutor(conf));
    }
    return connections;
  }

  @Override
  public void stop() {
    synchronized (this) {
      stopped = true;
      if (connections != null) {
        connections.close();
      }
    }
    super.stop();
  }
}
