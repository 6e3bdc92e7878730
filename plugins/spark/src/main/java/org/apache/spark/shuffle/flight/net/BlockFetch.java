package org.apache.spark.shuffle.flight.net;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One request of Spark's fetcher: a bounded list of blocks of one worker, fetched with one pull, and again when that
 * breaks. Each block is answered once, as fetched or as failed, as soon as that is known. Never blocks the task thread.
 *
 * <p>A pull that breaks is repeated with growing pauses until the retry window closes, so that a worker may restart in
 * the middle of a job. A corrupt block is fetched a second time: the fault may have been the wire's.
 */
final class BlockFetch implements Pull.Listener, BlockAssembler.Listener {
  private static final Logger LOG = LoggerFactory.getLogger(BlockFetch.class);
  private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(2);

  private final BlockFetcher fetcher;
  private final WorkerAddress worker;
  private final BlockFetchingListener listener;
  private final Supplier<BlockSink> sinks;
  private final List<WantedBlock> again = new ArrayList<>();
  private final List<MapAttempt> lost = new ArrayList<>();
  private String whyLost;
  private List<WantedBlock> wanted;
  private BlockAssembler blocks;
  private long pause = FIRST_PAUSE.toNanos();
  private long giveUp;
  private boolean repeatedForCorruption;
  private volatile Pull pull;

  BlockFetch(
      BlockFetcher fetcher, WorkerAddress worker, List<WantedBlock> wanted, BlockFetchingListener listener,
      Supplier<BlockSink> sinks) {
    this.fetcher = fetcher;
    this.worker = worker;
    this.wanted = wanted;
    this.listener = listener;
    this.sinks = sinks;
  }

  void start() {
    WorkerAddress now = fetcher.connections().locate(worker);
    GetTicket.Builder ticket = GetTicket.newBuilder().setShuffle(fetcher.shuffle());
    wanted.forEach(block -> ticket.addRanges(block.toMessage()));
    blocks = new BlockAssembler(now.toString(), wanted, sinks, this);
    pull =
        new Pull(
            fetcher.connections().channel(now), now.toString(), blocks, this, fetcher.ioTimeout(),
            fetcher.connections().timer());
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

  void cancel() {
    Pull running = pull;
    if (running != null) {
      running.cancel("the reduce task is over");
    }
  }

  @Override
  public void settled(BlockAssembler.Outcome outcome) {
    WantedBlock block = outcome.wanted();
    FlightException failure = outcome.failure();
    if (failure == null) {
      listener.onBlockFetchSuccess(block.blockId(), outcome.buffer());
    } else if (failure.code() == ErrorCode.BLOCK_CORRUPT && !repeatedForCorruption) {
      LOG.warn("{}; fetching it again", failure.getMessage());
      again.add(block);
    } else {
      whyLost = failure.getMessage();
      lost.add(MapAttempt.newBuilder().setMap(block.map()).setAttempt(WantedBlock.ATTEMPT).build());
      listener.onBlockFetchFailure(block.blockId(), failure);
    }
  }

  @Override
  public void pulled() {
    reportLost();
    if (again.isEmpty()) {
      fetcher.done(this);
    } else {
      repeatedForCorruption = true;
      wanted = List.copyOf(again);
      again.clear();
      start();
    }
  }

  @Override
  public void failed(FlightException failure) {
    wanted = Stream.concat(again.stream(), wanted.subList(blocks.settled(), wanted.size()).stream()).toList();
    again.clear();
    long now = System.nanoTime();
    if (giveUp == 0) {
      giveUp = now + fetcher.retryWindow().toNanos();
    }
    if (fetcher.closed() || !failure.passing() || now + pause > giveUp) {
      failAll(failure);
      return;
    }
    LOG.info("{}; pulling {} blocks again in {} ms", failure.getMessage(), wanted.size(), pause / 1_000_000);
    try {
      fetcher.connections().timer()
          .schedule(() -> fetcher.connections().pool().execute(this::retry), pause, TimeUnit.NANOSECONDS);
      pause = Math.min(2 * pause, LONGEST_PAUSE.toNanos());
    } catch (RejectedExecutionException e) {
      failAll(failure); // the executor is stopping
    }
  }

  private void retry() {
    try {
      fetcher.connections().refresh();
    } catch (IOException e) {
      LOG.info("{}; trying the last known address of {}", e.getMessage(), worker.id());
    }
    start();
  }

  private void reportLost() {
    if (!lost.isEmpty()) {
      fetcher.reportLost(List.copyOf(lost), whyLost);
      lost.clear();
    }
  }

  private void failAll(FlightException failure) {
    reportLost();
    wanted.forEach(block -> listener.onBlockFetchFailure(block.blockId(), failure));
    fetcher.done(this);
  }
}
