package org.apache.spark.shuffle.flight.client;

import io.grpc.CallOptions;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.ChannelOption;
import io.netty.channel.WriteBufferWaterMark;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.spark.shuffle.flight.proto.HelloReply;
import org.apache.spark.shuffle.flight.proto.LocateReply;
import org.apache.spark.shuffle.flight.proto.MapOutput;
import org.apache.spark.shuffle.flight.proto.PlaceReply;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.apache.spark.shuffle.flight.proto.WorkerChanges;
import org.apache.spark.shuffle.flight.proto.WorkersKnown;

/**
 * The connections of one process, shared by all its tasks: one to the control endpoint, one to each worker. HTTP/2
 * multiplexes the streams of all tasks over them.
 *
 * <p>Callbacks run on a pool of their own and may read, copy and checksum there; netty's threads only move bytes, and run
 * the callbacks of calls made with {@link #AT_ONCE}.
 */
public final class Connections implements AutoCloseable {
  /**
   * For calls whose callbacks are short and never wait, for the network least of all: they run on netty's threads. To wake
   * another for each is a good part of what a small call costs.
   */
  public static final CallOptions AT_ONCE = CallOptions.DEFAULT.withExecutor(Runnable::run);

  /**
   * Bytes that netty takes from the streams at a time, to write them to the socket. Its own 64 KiB are one write each, which
   * wakes the worker, and there a thread to poll in the place of the one that reads. With four times as much a worker switches
   * threads half as often ({@code perf stat -e context-switches}); larger writes gained no more.
   */
  private static final WriteBufferWaterMark UNWRITTEN = new WriteBufferWaterMark(128 << 10, 256 << 10);

  private static final AtomicInteger THREADS = new AtomicInteger();
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(5);

  private final String client;
  private final Credentials credentials;
  private final Duration connectTimeout;
  private final ExecutorService pool = Executors.newCachedThreadPool(daemon("flight-shuffle-io-"));
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(daemon("flight-shuffle-timer-"));
  private final WorkerTable workers = new WorkerTable();
  private final Placements placements = new Placements(System::nanoTime);
  private final ConcurrentMap<HostPort, ManagedChannel> channels = new ConcurrentHashMap<>();
  private final ControlClient control;

  /**
   * Opens nothing yet: gRPC connects with the first call.
   *
   * @param servers the control endpoints of all masters, of which one leads
   * @param client how this process introduces itself
   * @param credentials what it shows with every call
   */
  public Connections(List<HostPort> servers, Duration connectTimeout, String client, Credentials credentials) {
    this.client = client;
    this.credentials = credentials;
    this.connectTimeout = connectTimeout;
    this.control = new ControlClient(servers, this::connect, connectTimeout);
  }

  public ControlClient control() {
    return control;
  }

  /** Runs callbacks and calls that block. */
  public ExecutorService pool() {
    return pool;
  }

  /** Starts delayed work, which must not block. */
  public ScheduledExecutorService timer() {
    return timer;
  }

  /** Where the server said last that {@code worker} is; where the caller knows it to be until then. */
  public WorkerAddress locate(WorkerAddress worker) {
    return workers.find(worker.id()).orElse(worker);
  }

  /** Where {@code worker} is, if this process has its address. */
  public Optional<WorkerAddress> known(String worker) {
    return workers.find(worker);
  }

  /** Where {@code worker} is; asks the server about one that is new here. Empty when the server does not know it either. */
  public Optional<WorkerAddress> find(String worker) throws IOException {
    Optional<WorkerAddress> known = known(worker);
    if (known.isEmpty()) {
      refresh();
      known = known(worker);
    }
    return known;
  }

  /**
   * The worker to push a map output to. The master is asked once for all outputs of some seconds, and again when all of its
   * candidates have failed.
   *
   * @param host where the output is written
   * @param near a label, KEY=VALUE, of workers to prefer where none is at the host; or empty
   * @param avoid workers that just failed; one of them only when there is no other
   */
  public WorkerAddress place(ShuffleKey shuffle, String host, String near, Collection<String> avoid) throws IOException {
    Optional<WorkerAddress> known = placements.choose(host, avoid).flatMap(workers::find);
    if (known.isPresent()) {
      return known.get();
    }
    PlaceReply reply = control.place(shuffle, host, near, placements.toAvoid(avoid));
    List<Worker> found = reply.getWorkersList();
    if (found.isEmpty()) {
      throw FlightException.broken("Flight Shuffle server", "no worker takes map outputs", null);
    }
    workers.add(found);
    placements.answered(host, reply);
    if (!avoid.isEmpty()) {
      channels.values().forEach(ManagedChannel::resetConnectBackoff);
    }
    return placements.choose(host, Set.of()).flatMap(workers::find).orElse(WorkerAddress.of(found.get(0)));
  }

  /** {@code worker} did not take an output: no other goes there until the master is asked again. */
  public void failed(WorkerAddress worker) {
    placements.failed(worker.id());
  }

  /** For requests: the state of the list of workers that this process has. */
  public WorkersKnown workersKnown() {
    return workers.known();
  }

  /**
   * Takes in what the reply to a request with {@link #workersKnown} says.
   *
   * @param changes null from a server of an earlier release, which lists them all
   * @return all workers
   */
  public List<Worker> learn(WorkerChanges changes, List<Worker> listed) {
    if (changes == null) {
      return listed;
    }
    workers.learn(changes);
    return workers.all();
  }

  /**
   * At which workers map outputs lie now, as the master has it. They move: when a worker is drained, and to the other copy of a
   * shuffle with two when a worker is lost. Blocks.
   *
   * @return for each of {@code maps} that is not lost its workers, the one to ask first in front
   */
  public Map<Long, List<String>> outputs(ShuffleKey shuffle, Collection<Long> maps) throws IOException {
    Map<Long, List<String>> found = new HashMap<>();
    if (maps.isEmpty()) {
      return found;
    }
    Set<Long> wanted = new HashSet<>(maps);
    long next = Collections.min(wanted);
    long end = Collections.max(wanted) + 1;
    boolean more = true;
    while (more) {
      LocateReply page = control.locate(shuffle, next, end);
      workers.add(page.getWorkersList());
      for (MapOutput output : page.getOutputsList()) {
        if (wanted.contains(output.getOutput().getMap())) {
          Stream<String> its = Stream.concat(Stream.of(output.getWorker()), output.getCopiesList().stream());
          found.put(output.getOutput().getMap(), its.toList());
        }
      }
      more = page.getMore();
      if (more && page.getNextMap() <= next) {
        throw FlightException.broken("Flight Shuffle server", "its page of map outputs ends where it began: " + next, null);
      }
      next = page.getNextMap();
    }
    return found;
  }

  /**
   * Greets the server and learns where its workers are now: one that restarted may have another port.
   *
   * @return the ids of those it counts on
   */
  public Set<String> refresh() throws IOException {
    return refresh("");
  }

  /**
   * As {@link #refresh()}, at a master of the registry of {@code app}: a run, or the name of an application that is to be
   * registered.
   */
  public Set<String> refresh(String app) throws IOException {
    HelloReply reply = control.hello(client, workers.known(), app);
    if (reply.hasChanges()) {
      workers.learn(reply.getChanges());
    } else {
      workers.replace(reply.getWorkersList());
    }
    channels.values().forEach(ManagedChannel::resetConnectBackoff);
    return workers.ids();
  }

  /** The connection to a worker's Flight endpoint. */
  public ManagedChannel channel(WorkerAddress worker) {
    return channels.computeIfAbsent(worker.at(), this::connect);
  }

  /** Whether there is a connection to a worker. Blocks while one is made. */
  public boolean reaches(WorkerAddress worker) throws InterruptedIOException {
    ManagedChannel channel = channel(worker);
    channel.resetConnectBackoff();
    long deadline = System.nanoTime() + connectTimeout.toNanos();
    try {
      ConnectivityState state = channel.getState(true);
      while (state == ConnectivityState.IDLE || state == ConnectivityState.CONNECTING) {
        CountDownLatch changed = new CountDownLatch(1);
        channel.notifyWhenStateChanged(state, changed::countDown);
        if (!changed.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
          return false;
        }
        state = channel.getState(true);
      }
      return state == ConnectivityState.READY;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while connecting to " + worker);
    }
  }

  private ManagedChannel connect(HostPort address) {
    NettyChannelBuilder channel =
        NettyChannelBuilder.forTarget(HostResolver.target(address))
            .executor(pool)
            // A message's payload array is filled again once it was framed: gRPC must not keep messages to repeat them.
            .disableRetry()
            .maxInboundMessageSize(Integer.MAX_VALUE)
            .withOption(ChannelOption.WRITE_BUFFER_WATER_MARK, UNWRITTEN)
            .proxyDetector(target -> null);
    credentials.applyTo(channel);
    return channel.build();
  }

  @Override
  public void close() {
    timer.shutdownNow();
    channels.values().forEach(ManagedChannel::shutdownNow);
    control.shutdown();
    long deadline = System.nanoTime() + CLOSE_TIMEOUT.toNanos();
    try {
      for (ManagedChannel channel : channels.values()) {
        channel.awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
      }
      control.awaitTermination(deadline);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    pool.shutdown();
  }

  private static ThreadFactory daemon(String prefix) {
    return DaemonThreads.of(() -> prefix + THREADS.incrementAndGet());
  }
}
