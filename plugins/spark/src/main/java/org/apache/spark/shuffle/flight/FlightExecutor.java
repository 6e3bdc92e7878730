package org.apache.spark.shuffle.flight;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.flight.blocks.BlocksByWorker;
import org.apache.spark.shuffle.flight.blocks.FollowingBlocks;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.Credentials;
import org.apache.spark.shuffle.flight.client.HostPort;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.fetch.BlockFetcher;
import org.apache.spark.shuffle.flight.fetch.Prefetcher;
import org.apache.spark.shuffle.flight.fetch.Turn;
import org.apache.spark.shuffle.flight.local.LocalFileAccess;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.push.DataPusher;
import scala.Tuple2;

/**
 * What the tasks of one executor share: its connections, and the pushes under way.
 *
 * <p>Spark makes the {@code ShuffleDataIO} of an inner {@code SortShuffleManager} by class name and gives it the
 * configuration only. So that this one finds the executor it belongs to, each executor has a name in a registry, and the
 * inner manager's configuration carries that name; {@link #close} takes it out again.
 */
final class FlightExecutor implements AutoCloseable {
  private static final String NAME_KEY = "spark.shuffle.flightExecutor";
  private static final String TRANSPORT_MODULE = "shuffle";
  private static final ConcurrentMap<String, FlightExecutor> BY_NAME = new ConcurrentHashMap<>();

  private final String name = UUID.randomUUID().toString();
  private final FlightConf conf;
  private final String client;
  private final Supplier<List<HostPort>> servers;
  private final Supplier<Credentials> credentials;
  private final ConcurrentMap<Long, DataPusher> pushes = new ConcurrentHashMap<>(); // by task attempt
  private final ConcurrentMap<ShuffleKey, Prefetcher> ahead = new ConcurrentHashMap<>();
  private LocalFileAccess localFiles;
  private TransportConf transport;
  private boolean closed;

  /**
   * @param servers asked for with the first task: on the driver this is made before the application is registered
   * @param credentials likewise
   */
  FlightExecutor(
      FlightConf conf, String client, Supplier<List<HostPort>> servers, Supplier<Credentials> credentials) {
    this.conf = conf;
    this.client = client;
    this.servers = servers;
    this.credentials = credentials;
    BY_NAME.put(name, this);
  }

  /** The executor that {@code conf} names. */
  static FlightExecutor of(SparkConf conf) {
    FlightExecutor executor = BY_NAME.get(conf.get(NAME_KEY, ""));
    if (executor == null) {
      throw new IllegalStateException(
          "FlightShuffleDataIO is the shuffle plugin of another shuffle manager; set spark.shuffle.manager="
              + FlightShuffleManager.class.getName());
    }
    return executor;
  }

  /** A copy of {@code conf} that names this executor. */
  SparkConf named(SparkConf conf) {
    return conf.clone().set(NAME_KEY, name);
  }

  /** The push of one map task, known to {@link #push} until the task ends; whatever is not committed then is aborted. */
  DataPusher open(FlightShuffleHandle handle, TaskContext context) {
    DataPusher push = new DataPusher(localFiles(), conf, handle.key(), handle.partitions(), context);
    pushes.put(context.taskAttemptId(), push);
    context.addTaskCompletionListener(
        (org.apache.spark.util.TaskCompletionListener)
            ended -> {
              pushes.remove(ended.taskAttemptId());
              handle.count(push.traffic());
              push.close();
            });
    return push;
  }

  /** The push that {@link #open} made for the map task of this thread. */
  DataPusher push(int shuffle) {
    TaskContext context = TaskContext.get();
    DataPusher push = context == null ? null : pushes.get(context.taskAttemptId());
    if (push == null) {
      throw new IllegalStateException("no map task of shuffle " + shuffle + " runs on this thread");
    }
    return push;
  }

  /**
   * What one reader fetches with; the caller closes it.
   *
   * @param blocks of the task
   * @param partition the only one it reads, from all maps; -1 when it reads something else
   */
  BlockFetcher fetcher(FlightShuffleHandle handle, BlocksByWorker blocks, int partition) {
    LocalFileAccess files = localFiles();
    Turn turn = null;
    if (partition >= 0) {
      Prefetcher ahead = this.ahead.computeIfAbsent(handle.key(), key -> new Prefetcher(files.connections()));
      FollowingBlocks following = FollowingBlocks.known(SparkEnv.get().mapOutputTracker(), handle.shuffleId());
      turn = new Turn(ahead, partition, handle.partitions(), blocks.bytes(), following);
    }
    return new BlockFetcher(files, handle.key(), conf.ioTimeout(), conf.retryWindow(), blocks.most(), turn);
  }

  /** Frees what is known of a shuffle that is over, in all of its generations. */
  synchronized void ended(int shuffle) {
    for (ShuffleKey key : List.copyOf(ahead.keySet())) {
      if (key.getShuffle() == shuffle) {
        ahead.remove(key).close();
      }
    }
    if (localFiles != null) {
      localFiles.ended(shuffle);
    }
  }

  /** What Spark's fetcher is configured with; made once, because it copies the whole configuration. */
  synchronized TransportConf transport(SparkConf conf) {
    if (transport == null) {
      Map<String, String> settings = new HashMap<>();
      for (Tuple2<String, String> each : conf.getAll()) {
        settings.put(each._1(), each._2());
      }
      transport = new TransportConf(TRANSPORT_MODULE, new MapConfigProvider(settings));
    }
    return transport;
  }

  /** Bytes one task may buffer rows in; 0: Spark's own writers write everything. */
  int rowMemory() {
    return conf.rowMemory();
  }

  /** Whether rows are packed by column. */
  boolean packRows() {
    return conf.packRows();
  }

  private synchronized LocalFileAccess localFiles() {
    if (closed) {
      throw new IllegalStateException("this executor's shuffle manager is stopped");
    }
    if (localFiles == null) {
      Connections connections =
          new Connections(servers.get(), conf.connectTimeout(), client, credentials.get());
      localFiles = new LocalFileAccess(connections, conf.handOver(), conf.connectTimeout());
    }
    return localFiles;
  }

  @Override
  public synchronized void close() {
    closed = true;
    BY_NAME.remove(name);
    ahead.values().forEach(Prefetcher::close);
    if (localFiles != null) {
      localFiles.connections().close();
    }
  }
}
