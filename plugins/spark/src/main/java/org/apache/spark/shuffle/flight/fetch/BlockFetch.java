package org.apache.spark.shuffle.flight.fetch;

import io.grpc.ManagedChannel;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.Backoff;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.PeriodicTask;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One request of Spark's fetcher: a bounded list of blocks of one worker, fetched with one pull, and again when that
 * breaks. Each block is answered once, as fetched as soon as it is, as failed at the end. Never blocks the task thread.
 *
 * <p>A pull that breaks is repeated with growing pauses until the retry window closes, so that a worker may restart in
 * the middle of a job, and so are blocks that the worker is too busy to read; what lies at another worker, too, is fetched
 * from there at once. A corrupt block is fetched a second time: the fault may have been the wire's.
 *
 * <p>The first failure ends the task, and with it Spark begins to write again the outputs that are known to be lost. So
 * the reader first reports all that this request has found lost or corrupt to the master: checksums that differ, which
 * only a reader finds, are then known for all of these map outputs at once.
 */
final class BlockFetch implements PullCall.Listener, BlockAssembler.Listener {
  private static final Logger LOG = LoggerFactory.getLogger(BlockFetch.class);

  private final BlockFetcher fetcher;
  private final WorkerAddress worker;
  private final BlockFetchingListener listener;
  private final Supplier<BlockSink> sinks;
  private final Set<String> tried = new HashSet<>();
  private final List<WantedBlock> again = new ArrayList<>();
  private final FailedBlocks failures = new FailedBlocks();
  private List<WantedBlock> wanted;
  private BlockAssembler blocks; // null: nothing of what is wanted was given out
  private Backoff backoff; // null until something has failed
  private boolean repeatedForCorruption;
  private FlightException busy;
  private boolean whole;
  private volatile PullCall<?, ?> pull;

  /** @param whole whether it is probably little enough for one answer */
  BlockFetch(
      BlockFetcher fetcher, WorkerAddress worker, List<WantedBlock> wanted, Set<String> tried,
      BlockFetchingListener listener, Supplier<BlockSink> sinks, boolean whole) {
    this.fetcher = fetcher;
    this.worker = worker;
    this.tried.addAll(tried);
    this.tried.add(worker.id());
    this.wanted = wanted;
    this.listener = listener;
    this.sinks = sinks;
    this.whole = whole;
  }

  void start() {
    WorkerAddress now = fetcher.connections().locate(worker);
    GetTicket.Builder ticket = GetTicket.newBuilder().setShuffle(fetcher.shuffle());
    WantedBlock.runs(wanted).forEach(run -> ticket.addRanges(WantedBlock.range(run)));
    blocks = new BlockAssembler(now.toString(), wanted, sinks, this);
    ManagedChannel channel = fetcher.connections().channel(now);
    pull =
        whole
            ? new InlineFetch(
                channel, now.toString(), blocks, this, () -> aside(this::stream), fetcher.ioTimeout())
            : new Pull(
                channel, now.toString(), blocks, this, fetcher.ioTimeout(), fetcher.connections().timer());
    try {
      pull.start(ticket.build());
    } catch (RejectedExecutionException e) {
      failAll(FlightException.broken(now.toString(), "this executor's shuffle manager is stopped", e));
      return;
    }
    if (fetcher.closed()) {
      cancel();
    }
  }

  private void stream() {
    whole = false;
    start();
  }

  void cancel() {
    PullCall<?, ?> running = pull;
    if (running != null) {
      running.cancel("the reduce task is over");
    }
  }

  @Override
  public void settled(BlockAssembler.Outcome outcome) {
    WantedBlock block = outcome.wanted();
    FlightException failure = outcome.failure();
    if (failure == null) {
      try {
        listener.onBlockFetchSuccess(block.blockId(), outcome.buffer());
      } finally {
        outcome.buffer().release(); // the listener holds it as well, until the task has read it
      }
    } else if (failure.code() == ErrorCode.BLOCK_CORRUPT && !repeatedForCorruption) {
      LOG.warn("{}; fetching it again", failure.getMessage());
      again.add(block);
    } else if (failure.passing()) {
      busy = failure;
      again.add(block);
    } else {
      failures.add(block, failure);
    }
  }

  @Override
  public void pulled() {
    if (again.isEmpty() && failures.isEmpty()) {
      fetcher.done(this);
    } else {
      aside(this::goOn);
    }
  }

  private void goOn() {
    if (again.isEmpty()) {
      end();
      return;
    }
    wantWhatIsLeft();
    FlightException reason = busy;
    busy = null;
    if (reason == null) {
      repeatedForCorruption = true;
      start();
    } else {
      later(reason);
    }
  }

  @Override
  public void failed(FlightException failure) {
    aside(() -> repeat(failure));
  }

  /** What may block is not for the thread of a callback, which may be netty's. */
  private void aside(Runnable rest) {
    PeriodicTask.start(fetcher.connections().pool(), "a fetch", rest, this::giveUp);
  }

  /** Whatever goes wrong, each block is answered: with nothing that may go wrong as well. */
  private void giveUp(Throwable why) {
    FlightException failure = FlightException.broken(worker.toString(), "the fetch failed: " + why, why);
    left().forEach(block -> failures.add(block, failure));
    failures.answer(listener);
    fetcher.done(this);
  }

  /** What has not been given out. */
  private List<WantedBlock> left() {
    int settled = blocks == null ? 0 : blocks.settled();
    return Stream.concat(again.stream(), wanted.subList(settled, wanted.size()).stream()).toList();
  }

  private void wantWhatIsLeft() {
    wanted = left();
    again.clear();
    blocks = null;
  }

  private void repeat(FlightException failure) {
    wantWhatIsLeft();
    busy = null;
    later(failure);
  }

  private void later(FlightException failure) {
    if (backoff == null) {
      backoff = new Backoff(fetcher.retryWindow());
      wanted = fetcher.elsewhere(wanted, tried, listener, sinks); // a copy, if there is one: before waiting for this worker
      if (wanted.isEmpty()) {
        end();
        return;
      }
    }
    boolean inVain = !failures.isEmpty(); // the task fails whatever else arrives
    if (fetcher.closed() || inVain || !failure.passing() || !backoff.mayGoOn()) {
      failAll(failure);
      return;
    }
    long pause = backoff.nextNanos();
    LOG.info("{}; pulling {} blocks again in {} ms", failure.getMessage(), wanted.size(), pause / 1_000_000);
    PeriodicTask.later(
        fetcher.connections().timer(), Duration.ofNanos(pause), "a fetch", () -> aside(this::retry), this::giveUp);
  }

  private void retry() {
    try {
      if (!fetcher.connections().refresh().contains(worker.id())) {
        failAll(FlightException.broken(worker.toString(), "the master has given it up", null));
        return;
      }
    } catch (IOException e) {
      LOG.info("{}; trying the last known address of {}", e.getMessage(), worker.id());
    }
    start();
  }

  private void failAll(FlightException failure) {
    left().forEach(block -> failures.add(block, failure));
    end();
  }

  private void end() {
    FailedBlocks.Report report = failures.report();
    if (report != null && !fetcher.closed()) {
      fetcher.reportLost(report);
    }
    failures.retain(fetcher.elsewhere(failures.blocks(), tried, listener, sinks));
    failures.answer(listener);
    fetcher.done(this);
  }
}
