package org.apache.spark.shuffle.flight.driver;

import java.io.IOException;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.ControlClient;
import org.apache.spark.shuffle.flight.client.Credentials;
import org.apache.spark.shuffle.flight.client.DaemonThreads;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.client.Protocol;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.conf.ClientTls;
import org.apache.spark.shuffle.flight.conf.FallbackPolicy;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.conf.SecurityConf;
import org.apache.spark.shuffle.flight.proto.Driver;
import org.apache.spark.shuffle.flight.proto.HeartbeatReply;
import org.apache.spark.shuffle.flight.proto.HeartbeatRequest;
import org.apache.spark.shuffle.flight.proto.RegisterAppReply;
import org.apache.spark.shuffle.flight.proto.RegisterAppRequest;
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
 * heartbeat thread tries to reach it again; it logs one warning when the server goes away, one
 * line when it is back.
 */
final class AppRegistration implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(AppRegistration.class);
  private static final int DEFAULT_HEARTBEAT_SECONDS = 10;
  private static final int INSTANCE_LENGTH = 16;
  private static final Duration LOOK_EVERY = Duration.ofSeconds(2);
  private static final Duration UNREGISTER_AGAIN = Duration.ofSeconds(10);
  /** Spark's payloads: compressed and encrypted by Spark, so the server's codec has nothing to do. */
  private static final String CODEC = "none";
  private static final String CONTENT = "spark";

  /** A shuffle that the server may know: what it was asked to register, and its answer. */
  private record Asked(ShuffleRegistration registration, ShuffleKey key, ControlClient.Sent<RegisterShuffleReply> sent) {
    /** Blocks while it is under way. Without an answer the generation is 0, which is whichever the server has. */
    ShuffleKey settled() {
      RegisterShuffleReply reply = sent.settle();
      return reply == null ? key : generation(key, reply);
    }
  }

  private final FlightConf conf;
  private final Connections connections;
  private final String title;
  private final Driver driver;
  private final ClientTls tls;
  private final Credentials credentials;
  private final String instance = UUID.randomUUID().toString().replace("-", "").substring(0, INSTANCE_LENGTH);
  private final ScheduledExecutorService heartbeats =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.of(() -> "flight-shuffle-heartbeat"));
  private final EndedShuffles ended = new EndedShuffles(this::unregister, heartbeats, UNREGISTER_AGAIN);
  private final LostOutputs lostOutputs;
  private final RelayWorkers relays;
  private final Map<Integer, Asked> shuffles = new ConcurrentHashMap<>();
  private final Object reaching = new Object(); // held while the server is asked for the application
  private Set<String> workers = Set.of();
  private boolean registered;
  private boolean usable;
  private boolean warned;
  private String outOfUse = ""; // why the server was not usable last
  private volatile boolean doubted;
  private volatile boolean closed;

  /**
   * @param title for people, as {@code driver} is
   * @param report counts map outputs that are lost
   * @throws IllegalArgumentException for a file of the credentials that cannot be used
   */
  AppRegistration(FlightConf conf, String title, Driver driver, String client, ShuffleReport report) {
    this.conf = conf;
    this.title = title;
    this.driver = driver;
    String app = conf.security().app();
    this.tls = conf.security().readTls();
    this.credentials = conf.security().ofDriver(app != null ? app : newApp(), tls);
    this.connections = new Connections(conf.servers(), conf.connectTimeout(), client, credentials);
    this.lostOutputs = new LostOutputs(connections, this::key, this::doubt, report, conf.ioTimeout());
    this.relays = new RelayWorkers(credentials.app() + instance, conf.relayWorkers());
  }

  /** Random, because Spark has no id yet when the application is registered. */
  private static String newApp() {
    return "spark-" + UUID.randomUUID().toString().replace("-", "");
  }

  /**
   * The application's key at the server: this run of it. Two runs of one name share nothing but tokens and quotas. A server of
   * version 1 of the protocol has one run of a name at a time.
   */
  String run() {
    if (connections.control().protocol() == Protocol.OLDEST) {
      return credentials.app();
    }
    String registry = connections.control().registry();
    String run = credentials.app() + Credentials.RUN_SEPARATOR + instance;
    return registry.isEmpty() ? run : run + Credentials.RUN_SEPARATOR + registry;
  }

  /** What executors need beside the options. */
  Map<String, String> forExecutors() {
    return SecurityConf.forExecutors(run(), connections.control().address(), credentials, tls);
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
    connections.refresh(credentials.app());
    int seconds = register();
    beatEvery(seconds);
  }

  /** Goes on without the server, and looks for it in the background. */
  void startWithout(IOException reason) {
    unusable(reason);
    beatEvery(DEFAULT_HEARTBEAT_SECONDS);
  }

  private void beatEvery(int seconds) {
    PeriodicTask.every(heartbeats, Duration.ofSeconds(seconds), "the heartbeat", this::beat);
    PeriodicTask.every(heartbeats, LOOK_EVERY, "looking for workers", this::look);
  }

  /** Fetches the list of workers. Map outputs at a lost worker are to be written again, all at once. */
  private void look() {
    if (!isUsable()) {
      return;
    }
    try {
      Set<String> now = connections.refresh(run());
      workers.stream().filter(worker -> !now.contains(worker)).forEach(lostOutputs::workerGone);
      workers = now;
    } catch (IOException e) {
      LOG.debug("could not ask for the workers: {}", e.getMessage());
    }
  }

  private int register() throws IOException {
    RegisterAppRequest request =
        RegisterAppRequest.newBuilder()
            .setApp(run())
            .setInstance(instance)
            .setName(title)
            .setOnly(conf.only())
            .setKnown(connections.workersKnown())
            .setDriver(driver)
            .build();
    RegisterAppReply reply = connections.control().registerApp(request);
    connections.learn(reply.hasChanges() ? reply.getChanges() : null, reply.getWorkersList());
    synchronized (this) {
      registered = true;
    }
    usable();
    LOG.info("application {} is registered at Flight Shuffle server {}", run(), connections.control().address());
    return reply.getHeartbeatSeconds() > 0 ? reply.getHeartbeatSeconds() : DEFAULT_HEARTBEAT_SECONDS;
  }

  private void beat() {
    try {
      reach();
    } catch (IOException e) {
      unusable(e);
    }
  }

  /** Makes sure that the server has this application: the same run again, if it has dropped it. */
  void reach() throws IOException {
    synchronized (reaching) {
      if (isRegistered()) {
        try {
          HeartbeatRequest.Builder request = HeartbeatRequest.newBuilder().setApp(run()).setDriver(driver);
          HeartbeatReply reply =
              connections.control().heartbeat(request.setKnown(connections.workersKnown()).build());
          connections.learn(reply.hasChanges() ? reply.getChanges() : null, reply.getWorkersList());
          usable();
          return;
        } catch (FlightException e) {
          if (!e.appIsGone()) {
            throw e;
          }
          dropped(e);
        }
      }
      connections.refresh(credentials.app());
      register();
    }
  }

  /** A task could not read or write: the server is asked whether it still has the application before the next stage begins. */
  private void doubt() {
    doubted = true;
  }

  /** Blocks while it asks, if there is a doubt. */
  void settleDoubts() {
    if (doubted) {
      doubted = false;
      beat();
    }
  }

  /** The server has dropped the application, and all of its shuffles: their maps run again, in a new generation. */
  private void dropped(FlightException why) {
    synchronized (this) {
      if (!registered) {
        return;
      }
      registered = false;
    }
    LOG.warn("{}; the application is registered again, and the maps of {} shuffles run again when they are wanted",
        why.getMessage(), shuffles.size());
    shuffles.forEach((shuffle, asked) -> forget(shuffle, asked.registration()));
    shuffles.clear();
  }

  private void forget(int shuffle, ShuffleRegistration registration) {
    registration.forget();
    lostOutputs.forget(shuffle);
  }

  /**
   * Has the server asked to register a shuffle, and does not wait.
   *
   * @param pipelined whether workers relay it
   */
  ShuffleRegistration registerShuffle(int shuffle, int partitions, int maps, boolean pipelined) {
    RegisterShuffleRequest.Builder request =
        RegisterShuffleRequest.newBuilder()
            .setPartitions(partitions)
            .setMaps(maps)
            .setCodec(CODEC)
            .setContent(CONTENT)
            .setReplicas(conf.replicas());
    return new ShuffleRegistration(
        this, conf, shuffle, registration -> ask(registration, shuffle, request, pipelined));
  }

  private ShuffleRegistration.Answer ask(
      ShuffleRegistration registration, int shuffle, RegisterShuffleRequest.Builder request, boolean pipelined) {
    ShuffleKey key = ShuffleKey.newBuilder().setApp(run()).setShuffle(shuffle).build();
    ControlClient.Sent<RegisterShuffleReply> sent =
        connections.control().registerShuffle(request.setShuffle(key).setKnown(connections.workersKnown()).build());
    shuffles.put(shuffle, new Asked(registration, key, sent)); // if the answer is lost, the server knows it all the same
    return () -> {
      RegisterShuffleReply reply = sent.await();
      List<Worker> workers =
          connections.learn(reply.hasChanges() ? reply.getChanges() : null, reply.getWorkersList());
      if (workers.isEmpty()) {
        throw FlightException.broken("Flight Shuffle server " + conf.address(), "no worker has joined it", null);
      }
      List<WorkerAddress> chosen = pipelined ? chooseRelays(shuffle, request.getPartitions(), workers) : List.of();
      return new ShuffleRegistration.Registered(generation(key, reply), chosen);
    };
  }

  /** Of a worker that has died the server finds out later than this process, whose connection to it has ended. */
  private List<WorkerAddress> chooseRelays(int shuffle, int partitions, List<Worker> workers) throws IOException {
    Set<String> away = new HashSet<>();
    while (true) {
      List<WorkerAddress> chosen =
          relays.choose(shuffle, partitions, workers, away).stream().map(WorkerAddress::of).toList();
      boolean others = false;
      for (WorkerAddress worker : chosen) {
        others |= !connections.reaches(worker) && away.add(worker.id());
      }
      if (!others) {
        return chosen;
      }
    }
  }

  private static ShuffleKey generation(ShuffleKey key, RegisterShuffleReply reply) {
    return key.toBuilder().setGeneration(reply.getGeneration()).build();
  }

  /** What the server has a shuffle as; empty when it has not. Blocks while that is under way. */
  private Optional<ShuffleKey> key(int shuffle) {
    return Optional.ofNullable(shuffles.get(shuffle)).map(Asked::settled);
  }

  /**
   * Frees a shuffle's data. The server drops a shuffle that was not reported to it with the application.
   *
   * @param now report to the server before returning, instead of soon
   */
  void unregisterShuffle(int shuffle, boolean now) {
    relays.ended(shuffle);
    Asked asked = shuffles.remove(shuffle);
    if (asked == null) {
      return;
    }
    ended.add(asked.settled()); // else the end could overtake the beginning
    forget(shuffle, asked.registration());
    if (now && isUsable()) {
      ended.tell();
    }
  }

  /** Reports the end of an earlier shuffle with this number to the server, unless that was done; blocks meanwhile. */
  void tellEnd(int shuffle) throws IOException {
    ended.tell(shuffle);
  }

  private void unregister(List<ShuffleKey> ends) throws IOException {
    connections.control().unregisterShuffles(ends);
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
  void unusable(IOException reason) {
    if (reason instanceof FlightException known && known.appIsGone()) {
      dropped(known);
    }
    synchronized (this) {
      usable = false;
      outOfUse = reason.getMessage();
      if (!warned && conf.fallback() == FallbackPolicy.AUTO) {
        warned = true;
        LOG.warn(
            "{}. New shuffles use Spark's sort shuffle until Flight Shuffle server {} can be used ({}=auto)",
            reason.getMessage(), conf.address(), FlightConf.FALLBACK.key());
      }
    }
  }

  /** Why the server could not be used last. */
  synchronized String outOfUse() {
    return outOfUse;
  }

  boolean isClosed() {
    return closed;
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    heartbeats.shutdownNow();
    lostOutputs.close();
    if (isRegistered()) {
      try {
        connections.control().unregisterApp(run());
      } catch (IOException e) {
        LOG.warn("could not unregister this application, its data stays until it expires: {}", e.getMessage());
      }
    }
    connections.close();
  }
}
