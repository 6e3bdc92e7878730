package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.net.Connections;
import org.apache.spark.shuffle.flight.net.ControlClient;
import org.apache.spark.shuffle.flight.net.Credentials;
import org.apache.spark.shuffle.flight.net.DaemonThreads;
import org.apache.spark.shuffle.flight.net.FlightException;
import org.apache.spark.shuffle.flight.net.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.RegisterAppReply;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleReply;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleRequest;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The application at the server, held by the driver: registered, kept alive by heartbeats, unregistered at the end.
 *
 * <p>Knows whether the server is usable. While it is not, shuffles fall back (if they may) without another wait, and the
 * heartbeat thread tries to reach it again; going out of use is told with one warning, coming back with one line.
 */
final class AppRegistration implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(AppRegistration.class);
  private static final int DEFAULT_HEARTBEAT_SECONDS = 10;
  private static final int LOOK_SECONDS = 2;
  private static final Duration UNREGISTER_AGAIN = Duration.ofSeconds(10);
  /** Spark's payloads: compressed and encrypted by Spark, so the server's codec has nothing to do. */
  private static final String CODEC = "none";
  private static final String CONTENT = "spark";

  private final FlightConf conf;
  private final Connections connections;
  private final String name;
  private final Credentials credentials;
  private final String instance = UUID.randomUUID().toString();
  private final ScheduledExecutorService heartbeats =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.of(() -> "flight-shuffle-heartbeat"));
  private final EndedShuffles ended = new EndedShuffles(this::unregister, heartbeats, UNREGISTER_AGAIN);
  private final LostOutputs lostOutputs;
  private final RelayWorkers relays;
  private final Map<Integer, ControlClient.Sent<?>> shuffles = new ConcurrentHashMap<>(); // that the server may know
  private Set<String> workers = Set.of();
  private boolean registered;
  private boolean usable;
  private boolean warned;
  private volatile boolean closed;

  /** @throws IllegalArgumentException for a file of the credentials that cannot be used */
  AppRegistration(FlightConf conf, String name, String client) {
    this.conf = conf;
    this.name = name;
    String app = conf.security().app();
    this.credentials = conf.security().ofDriver(app != null ? app : newApp());
    this.connections = new Connections(conf.host(), conf.port(), conf.connectTimeout(), client, credentials);
    this.lostOutputs = new LostOutputs(connections, app(), conf.ioTimeout());
    this.relays = new RelayWorkers(app());
  }

  /** Random, because Spark has no id yet when the application is registered. */
  private static String newApp() {
    return "spark-" + UUID.randomUUID().toString().replace("-", "");
  }

  /** The application's key at the server. */
  String app() {
    return credentials.app();
  }

  Credentials credentials() {
    return credentials;
  }

  LostOutputs lostOutputs() {
    return lostOutputs;
  }

  /**
   * Registers the application and starts its heartbeats.
   *
   * @throws IOException when the server does not take it; the heartbeats have not started then
   */
  void start() throws IOException {
    connections.refresh();
    int seconds = register();
    beatEvery(seconds);
  }

  /** Goes on without the server, and looks for it in the background. */
  void startWithout(IOException reason) {
    unusable(reason);
    beatEvery(DEFAULT_HEARTBEAT_SECONDS);
  }

  private void beatEvery(int seconds) {
    heartbeats.scheduleWithFixedDelay(this::beat, seconds, seconds, TimeUnit.SECONDS);
    heartbeats.scheduleWithFixedDelay(this::look, LOOK_SECONDS, LOOK_SECONDS, TimeUnit.SECONDS);
  }

  /** Looks which workers there are. What lay at one that the master has given up is to be written again, all at once. */
  private void look() {
    if (!isUsable()) {
      return;
    }
    try {
      Set<String> now = connections.refresh();
      workers.stream().filter(worker -> !now.contains(worker)).forEach(lostOutputs::workerGone);
      workers = now;
    } catch (IOException e) {
      LOG.debug("could not ask for the workers: {}", e.getMessage());
    }
  }

  private synchronized int register() throws IOException {
    RegisterAppReply reply = connections.control().registerApp(app(), instance, name);
    registered = true;
    usable();
    return reply.getHeartbeatSeconds() > 0 ? reply.getHeartbeatSeconds() : DEFAULT_HEARTBEAT_SECONDS;
  }

  private void beat() {
    try {
      reach();
    } catch (IOException e) {
      unusable(e);
    }
  }

  /** Makes sure that the server knows this application. */
  void reach() throws IOException {
    if (isRegistered()) {
      connections.control().heartbeat(app());
      usable();
    } else {
      connections.refresh();
      register();
    }
  }

  /**
   * Has the server asked to register a shuffle, and does not wait.
   *
   * @param pipelined whether a worker relays it
   */
  ShuffleRegistration registerShuffle(int shuffle, int partitions, int maps, boolean pipelined) {
    RegisterShuffleRequest request =
        RegisterShuffleRequest.newBuilder()
            .setShuffle(ShuffleKey.newBuilder().setApp(app()).setShuffle(shuffle))
            .setPartitions(partitions)
            .setMaps(maps)
            .setCodec(CODEC)
            .setContent(CONTENT)
            .setReplicas(conf.replicas())
            .build();
    return new ShuffleRegistration(this, conf, shuffle, () -> ask(shuffle, request, pipelined));
  }

  private ShuffleRegistration.Answer ask(int shuffle, RegisterShuffleRequest request, boolean pipelined) {
    ControlClient.Sent<RegisterShuffleReply> sent = connections.control().registerShuffle(request);
    shuffles.put(shuffle, sent); // if the answer is lost, the server knows it all the same
    return () -> {
      List<Worker> workers = sent.await().getWorkersList();
      return (pipelined ? relays.choose(shuffle, workers) : workers.stream().findFirst())
          .map(WorkerAddress::of)
          .orElseThrow(
              () -> FlightException.broken("Flight Shuffle server " + conf.address(), "no worker has joined it", null));
    };
  }

  /**
   * Frees a shuffle's data. What the server does not hear of it drops with the application.
   *
   * @param now return when the server has heard of it, instead of soon
   */
  void unregisterShuffle(int shuffle, boolean now) {
    relays.ended(shuffle);
    ControlClient.Sent<?> registered = shuffles.remove(shuffle);
    if (registered == null) {
      return;
    }
    registered.settle(); // else the server could hear of its end first
    ended.add(shuffle);
    if (now && isUsable()) {
      ended.tell();
    }
  }

  private void unregister(List<Integer> ends) throws IOException {
    connections.control().unregisterShuffles(app(), ends);
  }

  private synchronized boolean isRegistered() {
    return registered;
  }

  synchronized boolean isUsable() {
    return usable;
  }

  private synchronized void usable() {
    if (!usable && warned) {
      LOG.info("Flight Shuffle server {} is in use again", conf.address());
    }
    usable = true;
    warned = false;
  }

  /** The server did not do what it was asked to: it is out of use until it is reached again. */
  synchronized void unusable(IOException reason) {
    usable = false;
    if (reason instanceof FlightException known && known.code() == ErrorCode.UNKNOWN_APP) {
      registered = false;
    }
    if (!warned && conf.fallback() == FallbackPolicy.AUTO) {
      warned = true;
      LOG.warn(
          "{}. New shuffles use Spark's sort shuffle until Flight Shuffle server {} can be used ({}=auto)",
          reason.getMessage(), conf.address(), FlightConf.FALLBACK.key());
    }
  }

  boolean isClosed() {
    return closed;
  }

  @Override
  public void close() {
    closed = true;
    heartbeats.shutdownNow();
    lostOutputs.close();
    if (isRegistered()) {
      try {
        connections.control().unregisterApp(app());
      } catch (IOException e) {
        LOG.warn("could not unregister this application, its data stays until it expires: {}", e.getMessage());
      }
    }
    connections.close();
  }
}
