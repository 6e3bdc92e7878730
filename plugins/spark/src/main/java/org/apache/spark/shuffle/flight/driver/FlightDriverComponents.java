package org.apache.spark.shuffle.flight.driver;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.flight.conf.FallbackPolicy;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.metrics.TrafficCounter;
import org.apache.spark.shuffle.flight.proto.Driver;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.ui.FlightApplicationEvent;

/**
 * The driver's end: registers the application when the {@code SparkContext} starts and unregisters it when that stops.
 * {@code FlightShuffleManager} finds this object through the context and decides with it, shuffle by shuffle.
 */
public final class FlightDriverComponents implements ShuffleDriverComponents {
  private final FlightConf conf;
  private final String appName;
  private final Driver driver;
  private final String client;
  private final Function<ShuffleDependency<?, ?, ?>, String> rule;
  private final ShuffleReport report;
  private AppRegistration registration;
  private volatile boolean fellBack;

  /**
   * @param driver this process, for people who look at the server
   * @param client how this process introduces itself
   * @param rule why the user has a shuffle go to Spark's sort shuffle; null for one that does not
   */
  public FlightDriverComponents(
      FlightConf conf,
      String appName,
      Driver driver,
      String client,
      Function<ShuffleDependency<?, ?, ?>, String> rule) {
    this.conf = conf;
    this.appName = appName;
    this.driver = driver;
    this.client = client;
    this.rule = rule;
    this.report = new ShuffleReport(conf.ui());
  }

  /**
   * @return what executors need beside the options: the application's key at the server, which Spark's environment page
   *     shows, its token and private key, which Spark redacts there, and certificates
   */
  @Override
  public Map<String, String> initializeApplication() {
    if (conf.fallback() == FallbackPolicy.ALWAYS) {
      fellBack = true;
      return Map.of();
    }
    registration = new AppRegistration(conf, appName, driver, client, report);
    try {
      registration.start();
    } catch (IOException e) {
      if (conf.fallback() == FallbackPolicy.NEVER) {
        registration.close();
        throw new UncheckedIOException(e);
      }
      fellBack = true;
      registration.startWithout(e);
    }
    return registration.forExecutors();
  }

  @Override
  public void cleanupApplication() {
    if (registration != null) {
      registration.close();
    }
    report.end(application());
  }

  private String application() {
    return registration == null ? "application" : "application " + registration.run();
  }

  @Override
  public void removeShuffle(int shuffleId, boolean blocking) {
    report.remove(shuffleId);
    if (registration != null) {
      registration.unregisterShuffle(shuffleId, blocking);
    }
    SparkEnv env = SparkEnv.get();
    if (env != null) { // the application has not ended
      ExecutorCleanup.remove(env, shuffleId, blocking);
    }
  }

  /** Whether map outputs outlive their executors: not those of a shuffle that fell back. */
  @Override
  public boolean supportsReliableStorage() {
    return !fellBack;
  }

  /** Looks after the map outputs of {@code context}'s shuffles; again is a no-op. */
  public void watch(SparkContext context) {
    registration.lostOutputs().watch(context);
  }

  /** Reports the shuffles of {@code context} from now on; again is a no-op. */
  public void report(SparkContext context) {
    String run = registration == null ? "" : registration.run();
    String policy = conf.fallback().name().toLowerCase(Locale.ROOT);
    report.begin(context, new FlightApplicationEvent(conf.address(), run, client, policy));
  }

  /** What the tasks of a shuffle that is registered count in; null when nothing is counted. */
  public TrafficCounter counter(int shuffleId, int partitions, int maps) {
    return report.add(shuffleId, maps, partitions);
  }

  /** Whether Spark's sort shuffle has it: nothing is shuffled, or the user says so. It is not registered. */
  public boolean keeps(ShuffleDependency<?, ?, ?> shuffle) {
    // What no map writes needs no server. Spark asks for the shuffle of such a stage where an exception would hang the query.
    if (shuffle.rdd().getNumPartitions() == 0 || shuffle.partitioner().numPartitions() == 0) {
      return true;
    }
    boolean always = conf.fallback() == FallbackPolicy.ALWAYS;
    String reason = always ? FlightConf.FALLBACK.key() + "=always" : rule.apply(shuffle);
    if (reason == null) {
      return false;
    }
    fellBack = true;
    report.fellBack(
        shuffle.shuffleId(), shuffle.rdd().getNumPartitions(), shuffle.partitioner().numPartitions(), reason);
    return true;
  }

  /**
   * Has a shuffle registered at the server while the caller goes on, unless the server is known to be out of use: then waits.
   *
   * @return waits, and returns what the server has the shuffle as; empty when it falls back. Asked again for a shuffle that
   *     the server has dropped, or Spark has cleaned, it registers it anew. Throws as {@link #register}.
   */
  public Supplier<Optional<ShuffleKey>> registerSoon(int shuffleId, int partitions, int maps) {
    ShuffleRegistration registration = this.registration.registerShuffle(shuffleId, partitions, maps, false);
    if (!registration.wasAsked()) {
      settle(registration);
    }
    return () -> {
      Optional<ShuffleRegistration.Registered> registered = settle(registration);
      if (registered.isEmpty()) {
        report.fellBack(shuffleId, maps, partitions, registration.fallback());
      }
      return registered.map(ShuffleRegistration.Registered::key);
    };
  }

  /**
   * Registers a shuffle at the server.
   *
   * @param pipelined whether workers relay it
   * @return as {@link ShuffleRegistration#await}, which says what is thrown as well
   */
  public Optional<ShuffleRegistration.Registered> register(int shuffleId, int partitions, int maps, boolean pipelined) {
    if (conf.fallback() == FallbackPolicy.ALWAYS) {
      return Optional.empty();
    }
    ShuffleRegistration asked = registration.registerShuffle(shuffleId, partitions, maps, pipelined);
    Optional<ShuffleRegistration.Registered> registered = settle(asked);
    if (registered.isEmpty()) {
      report.fellBack(shuffleId, maps, partitions, asked.fallback());
    }
    return registered;
  }

  private Optional<ShuffleRegistration.Registered> settle(ShuffleRegistration registration) {
    Optional<ShuffleRegistration.Registered> registered = registration.await();
    if (registered.isEmpty()) {
      fellBack = true;
    }
    return registered;
  }
}
