package org.apache.spark.shuffle.flight.local;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import io.grpc.CallOptions;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.client.Protocol;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.ProbeReply;
import org.apache.spark.shuffle.flight.proto.ProbeRequest;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.wire.FlightAction;
import org.apache.spark.shuffle.flight.wire.FlightCalls;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Which workers' files this process sees, and the actions by which they are handed over (docs/protocol.md, Hand-over).
 *
 * <p>A worker is asked once where its nonce lies. A process that can read it is on its host; for all others, and
 * whenever anything of this fails, there is the wire: callers take null, or an exception of a single action, as "use
 * the wire".
 */
public final class LocalFileAccess {
  private static final Logger LOG = LoggerFactory.getLogger(LocalFileAccess.class);
  private static final String PREFIX = "hand-over.";
  private static final long NEVER = Long.MAX_VALUE;
  private static final Duration PAUSE = Duration.ofSeconds(30);

  /** Of indexes of files, kept by this process. */
  static final int KNOWN_FILES_BYTES = 32 << 20;

  private static final Duration TELL_AFTER = Duration.ofSeconds(5);

  /** What is known of a worker: its nonce, or null and when to ask again; and where it was then. */
  private record Place(ByteString nonce, long askAgain, WorkerAddress at) {}

  private final Connections connections;
  private final boolean allowed;
  private final Duration timeout;
  private final ConcurrentMap<String, Place> places = new ConcurrentHashMap<>();
  private final ConcurrentMap<String, ByteString> refused = new ConcurrentHashMap<>();
  private final FileIndexCache files = new FileIndexCache(KNOWN_FILES_BYTES);
  private final ReadCounts reads = new ReadCounts();

  /**
   * @param allowed false: everything goes over the wire
   * @param timeout how long an action may take that does not wait for a disk
   */
  public LocalFileAccess(Connections connections, boolean allowed, Duration timeout) {
    this.connections = connections;
    this.allowed = allowed;
    this.timeout = timeout;
  }

  public Connections connections() {
    return connections;
  }

  public Duration timeout() {
    return timeout;
  }

  public FileIndexCache files() {
    return files;
  }

  /** A shuffle is over: nobody reads its files again. */
  public void ended(int shuffle) {
    files.drop(shuffle);
  }

  /** Blocks were read without asking: they are reported to their worker soon, with all that is read until then. */
  void read(String worker, ShuffleKey shuffle, long blocks, long bytes) {
    if (reads.add(worker, shuffle, blocks, bytes)) {
      try {
        PeriodicTask.later(
            connections.timer(), TELL_AFTER, "reporting reads",
            () -> PeriodicTask.start(connections.pool(), "reporting reads", this::tellReads));
      } catch (RejectedExecutionException e) {
        LOG.debug("what is read now is not told: this process ends");
      }
    }
  }

  /** So that it shows in the worker's metrics, and counts as use. One that cannot be told goes without. */
  void tellReads() {
    reads.take()
        .forEach(
            (id, request) -> {
              try {
                Optional<WorkerAddress> worker = connections.find(id);
                ByteString nonce = worker.isEmpty() ? null : nonce(worker.get(), request.getReads(0).getShuffle());
                if (nonce != null) {
                  act(worker.get(), "tell-reads", request.setNonce(nonce).build(), timeout);
                }
              } catch (IOException e) {
                LOG.debug("worker {} was not told what has been read of its files: {}", id, e.getMessage());
              }
            });
  }

  /** Whether it is known that the worker's files are not seen from here. Does not block. */
  public boolean ruledOut(WorkerAddress worker) {
    Place place = known(worker);
    return !allowed || (place != null && place.nonce() == null && System.nanoTime() < place.askAgain());
  }

  /** What opens the worker's files, or null. The first call of a process asks the worker, and blocks. */
  public ByteString nonce(WorkerAddress worker, ShuffleKey shuffle) {
    if (ruledOut(worker)) {
      return null;
    }
    Place place = known(worker);
    if (place == null || place.nonce() == null) {
      place = probe(worker, shuffle);
      places.put(worker.id(), place);
    }
    return place.nonce();
  }

  /** As {@link #nonce}, for a worker that has lent something: whether it will answer or not, it is asked. */
  public ByteString anyNonce(WorkerAddress worker, ShuffleKey shuffle) {
    Place place = known(worker);
    if (place == null || place.nonce() == null) {
      place = probe(worker, shuffle);
      places.put(worker.id(), place);
    }
    return place.nonce() == null ? ByteString.EMPTY : place.nonce();
  }

  /** A worker at another address was restarted: its entry is void, also one that says that it did not answer. */
  private Place known(WorkerAddress worker) {
    Place place = places.get(worker.id());
    return place != null && place.at().equals(connections.locate(worker)) ? place : null;
  }

  private Place probe(WorkerAddress worker, ShuffleKey shuffle) {
    WorkerAddress at = connections.locate(worker);
    try {
      ProbeRequest request =
          ProbeRequest.newBuilder().setProtocol(Protocol.of(shuffle)).setApp(shuffle.getApp()).build();
      Path file = Path.of(ProbeReply.parseFrom(act(worker, "probe", request, timeout).get(0)).getNonceFile());
      try {
        ByteString nonce = ByteString.copyFrom(Files.readAllBytes(file));
        if (refused.remove(worker.id(), nonce)) {
          // A worker of this host has its files under the same path as that one has on its own.
          LOG.debug("{} is on another host: map outputs go over the wire for {} s", worker, PAUSE.toSeconds());
          return new Place(null, System.nanoTime() + PAUSE.toNanos(), at);
        }
        LOG.info("map outputs are handed over to {} as files", worker);
        return new Place(nonce, 0, at);
      } catch (ClosedByInterruptException e) {
        throw e;
      } catch (IOException e) {
        LOG.info("{} is on another host or belongs to another user ({}): map outputs go over the wire", worker, e.toString());
        return new Place(null, NEVER, at);
      }
    } catch (InterruptedIOException | ClosedByInterruptException e) {
      LOG.debug("asking {} was interrupted: {}", worker, e.toString()); // a task was killed: that says nothing of the worker
      return new Place(null, System.nanoTime(), at);
    } catch (IOException | IndexOutOfBoundsException | InvalidPathException e) {
      LOG.info("{}; map outputs go over the wire", e.getMessage());
      return new Place(null, e instanceof FlightException failure ? askAgain(failure) : NEVER, at);
    }
  }

  /** When a worker that refused to be asked is asked again; a refused application may be registered again by then. */
  private static long askAgain(FlightException refusal) {
    if (refusal.concernsData()) {
      return System.nanoTime();
    }
    return refusal.passing() ? System.nanoTime() + PAUSE.toNanos() : NEVER;
  }

  /** An action was refused, or a file was not what the worker said. The caller goes on over the wire. */
  public void failed(WorkerAddress worker, IOException failure) {
    if (failure instanceof FlightException refusal && refusal.concernsData()) {
      LOG.debug("{}; the worker's files stay in use", refusal.getMessage());
      return;
    }
    if (failure instanceof FlightException refusal
        && (refusal.passing() || refusal.code() == ErrorCode.PERMISSION_DENIED)) {
      LOG.info("{}; the data goes over the network instead", refusal.getMessage());
      Place place = places.remove(worker.id()); // it is away, or was restarted: its nonce is a new one
      if (!refusal.passing() && place != null && place.nonce() != null) {
        refused.put(worker.id(), place.nonce());
      }
      return;
    }
    LOG.warn("hand-over to {} failed: {}; map outputs go over the wire for {} s", worker, failure, PAUSE.toSeconds());
    places.put(worker.id(), new Place(null, System.nanoTime() + PAUSE.toNanos(), connections.locate(worker)));
  }

  /** The results of one action; blocks. */
  public List<byte[]> act(WorkerAddress worker, String action, MessageLite request, Duration patience) throws IOException {
    WorkerAddress now = connections.locate(worker);
    try {
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(patience.toNanos(), TimeUnit.NANOSECONDS);
      Iterator<byte[]> results =
          ClientCalls.blockingServerStreamingCall(
              connections.channel(now), FlightCalls.DO_ACTION, options,
              new FlightAction(PREFIX + action, request.toByteArray()));
      List<byte[]> all = new ArrayList<>();
      results.forEachRemaining(all::add);
      return all;
    } catch (StatusRuntimeException e) {
      if (Thread.currentThread().isInterrupted()) {
        throw (IOException) new InterruptedIOException("interrupted while asking " + now).initCause(e);
      }
      throw FlightException.ended(now.toString(), e.getStatus(), e.getTrailers());
    }
  }
}
