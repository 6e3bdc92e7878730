package org.apache.spark.shuffle.flight.driver;

import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.shuffle.flight.blocks.MapLocation;
import org.apache.spark.shuffle.flight.metrics.Skew;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.shuffle.flight.metrics.TrafficCounter;
import org.apache.spark.shuffle.flight.metrics.WorkerTraffic;
import org.apache.spark.shuffle.flight.ui.FlightApplicationEvent;
import org.apache.spark.shuffle.flight.ui.FlightShuffleEvent;
import org.apache.spark.shuffle.flight.ui.FlightTab;
import org.apache.spark.shuffle.flight.ui.FlightUiListener;
import org.apache.spark.status.ElementTrackingStore;
import org.apache.spark.storage.BlockManagerId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.runtime.BoxedUnit;

/**
 * What the driver reports of an application's shuffles: events for Spark's pages and event log, one per shuffle when a stage has
 * changed it and at most one in ten seconds meanwhile, and the totals at the end.
 */
final class ShuffleReport extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(ShuffleReport.class);
  private static final long MEANWHILE_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** Sizes looked at for the skew of one shuffle: some milliseconds. Of more map outputs, some are looked at. */
  private static final int MOST_SIZES = 200_000;

  /** One shuffle. Its lock guards the event that was posted last. */
  private static final class Shuffle {
    private final int maps;
    private final int partitions;
    private final TrafficCounter counter = new TrafficCounter();
    private volatile String fallback = "";
    private final Set<BlockManagerId> lost = ConcurrentHashMap.newKeySet(); // each is of one map output
    private FlightShuffleEvent posted;
    private long mapsOfSkew;
    private Skew skew;

    private Shuffle(int maps, int partitions) {
      this.maps = maps;
      this.partitions = partitions;
    }
  }

  private final boolean enabled;
  private final Map<Integer, Shuffle> shuffles = new ConcurrentHashMap<>();
  private volatile SparkContext context;
  private volatile long lastMeanwhile = System.nanoTime();
  private Totals totals = new Totals(0, 0, 0, Traffic.NONE, 0, 0);

  /** Of the shuffles that are over, or of all. */
  private record Totals(int shuffles, int fellBack, long maps, Traffic traffic, long lost, long rerun) {
    Totals plus(Shuffle one) {
      boolean away = !one.fallback.isEmpty();
      Traffic moved = one.counter.value();
      long again = Math.max(0, moved.sum(WorkerTraffic::maps) - one.maps);
      return new Totals(
          shuffles + 1, fellBack + (away ? 1 : 0), maps + moved.sum(WorkerTraffic::maps), traffic.plus(moved),
          lost + one.lost.size(), rerun + again);
    }
  }

  /** @param enabled false: nothing is counted or posted but how many shuffles there were */
  ShuffleReport(boolean enabled) {
    this.enabled = enabled;
  }

  /** The application has a shuffle: its page is there from now on. Again is a no-op. */
  synchronized void begin(SparkContext context, FlightApplicationEvent application) {
    if (!enabled || this.context != null) {
      return;
    }
    this.context = context;
    context.listenerBus().addToManagementQueue(this);
    if (context.ui().isDefined()) {
      ElementTrackingStore store = (ElementTrackingStore) context.statusStore().store();
      context.listenerBus().addToStatusQueue(new FlightUiListener(store));
      FlightTab.attach(context.ui().get());
    }
    post(application);
  }

  private void post(SparkListenerEvent event) {
    context.listenerBus().post(event);
  }

  /**
   * A shuffle of the application is registered.
   *
   * @return what its tasks count in; null when nothing is counted
   */
  TrafficCounter add(int shuffle, int maps, int partitions) {
    Shuffle added = new Shuffle(maps, partitions);
    shuffles.put(shuffle, added);
    if (context == null) {
      return null;
    }
    added.counter.register(context, Option.empty(), false);
    return added.counter;
  }

  /** Spark's sort shuffle has it. */
  void fellBack(int shuffle, int maps, int partitions, String reason) {
    Shuffle one = shuffles.computeIfAbsent(shuffle, key -> new Shuffle(maps, partitions));
    if (!reason.equals(one.fallback)) {
      one.fallback = reason;
      LOG.info("shuffle {} goes to Spark's sort shuffle: {}", shuffle, reason);
      postIfChanged(shuffle, one);
    }
  }

  /** Map outputs are lost; again is a no-op. */
  void lost(int shuffle, Collection<BlockManagerId> outputs) {
    Shuffle one = shuffles.get(shuffle);
    if (one != null && one.lost.addAll(outputs)) {
      postIfChanged(shuffle, one);
    }
  }

  /** A shuffle is over. */
  void remove(int shuffle) {
    Shuffle one = shuffles.remove(shuffle);
    if (one != null) {
      postIfChanged(shuffle, one);
      synchronized (this) {
        totals = totals.plus(one);
      }
    }
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted completed) {
    shuffles.forEach(this::postIfChanged);
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd ended) {
    if (System.nanoTime() - lastMeanwhile > MEANWHILE_NANOS) {
      lastMeanwhile = System.nanoTime();
      shuffles.forEach(this::postIfChanged);
    }
  }

  private void postIfChanged(int shuffle, Shuffle one) {
    if (context == null) {
      return;
    }
    synchronized (one) {
      Traffic traffic = one.counter.value();
      FlightShuffleEvent posted = one.posted;
      boolean same =
          posted == null
              ? traffic.empty() && one.fallback.isEmpty() && one.lost.isEmpty()
              : posted.traffic() == traffic && posted.fallback().equals(one.fallback) && posted.lost() == one.lost.size();
      if (!same) {
        measure(shuffle, one, traffic.sum(WorkerTraffic::maps));
        one.posted = new FlightShuffleEvent(shuffle, one.maps, one.partitions, one.fallback, traffic, one.lost.size(), one.skew);
        post(one.posted);
      }
    }
  }

  /** Finds out about its skew when its last map has run, and whenever one has run again. */
  private void measure(int shuffle, Shuffle one, long maps) {
    if (maps >= one.maps && maps != one.mapsOfSkew) {
      skew(shuffle, one.partitions).ifPresent(
          found -> {
            one.skew = found;
            one.mapsOfSkew = maps;
          });
    }
  }

  private Optional<Skew> skew(int shuffle, int partitions) {
    Option<ShuffleStatus> status =
        context.env().mapOutputTracker() instanceof MapOutputTrackerMaster master
            ? master.shuffleStatuses().get(shuffle)
            : Option.empty();
    if (status.isEmpty()) {
      return Optional.empty();
    }
    long[] sizes = new long[partitions];
    status.get()
        .withMapStatuses(
            statuses -> {
              add(statuses, sizes);
              return BoxedUnit.UNIT;
            });
    return Optional.of(Skew.of(sizes));
  }

  private static void add(MapStatus[] statuses, long[] sizes) {
    int step = (int) Math.max(1, (long) statuses.length * sizes.length / MOST_SIZES);
    for (int map = 0; map < statuses.length; map += step) {
      if (statuses[map] != null) {
        long share = MapLocation.share(statuses[map].location());
        for (int partition = 0; partition < sizes.length; partition++) {
          sizes[partition] += statuses[map].getSizeForBlock(partition) * share * step / MapLocation.WHOLE;
        }
      }
    }
  }

  /** Logs the totals. */
  synchronized void end(String application) {
    Totals all = totals;
    for (Shuffle one : shuffles.values()) {
      all = all.plus(one);
    }
    LOG.info(
        "{} ends: {} shuffles, {} of them in Spark's sort shuffle; {} map outputs with {} bytes and {} records written, {} bytes "
            + "and {} records read; {} map outputs lost, {} maps ran again",
        application, all.shuffles(), all.fellBack(), all.maps(), all.traffic().bytesWritten(),
        all.traffic().sum(WorkerTraffic::recordsWritten), all.traffic().bytesRead(), all.traffic().recordsRead(),
        all.lost(), all.rerun());
  }
}
