package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;

/**
 * The driver's end: registers the application when the {@code SparkContext} starts and unregisters it when that stops.
 * {@link FlightShuffleManager} finds this object through the context and decides with it, shuffle by shuffle.
 */
final class FlightDriverComponents implements ShuffleDriverComponents {
  private final FlightConf conf;
  private final String appName;
  private final BuildInfo build;
  private final UserFallback rule;
  private AppRegistration registration;
  private volatile boolean fellBack;

  FlightDriverComponents(FlightConf conf, String appName, BuildInfo build, UserFallback rule) {
    this.conf = conf;
    this.appName = appName;
    this.build = build;
    this.rule = rule;
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
    registration = new AppRegistration(conf, appName, build.client());
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
  }

  @Override
  public void removeShuffle(int shuffleId, boolean blocking) {
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
  void watch(SparkContext context) {
    registration.lostOutputs().watch(context);
  }

  /** Whether Spark's sort shuffle has it: nothing is shuffled, or the user says so. It is not registered. */
  boolean keeps(ShuffleDependency<?, ?, ?> shuffle) {
    // What no map writes needs no server. Spark asks for the shuffle of such a stage where an exception would hang the query.
    if (shuffle.rdd().getNumPartitions() == 0 || shuffle.partitioner().numPartitions() == 0) {
      return true;
    }
    if (conf.fallback() == FallbackPolicy.ALWAYS) {
      return true;
    }
    if (rule.takes(shuffle)) {
      fellBack = true;
      return true;
    }
    return false;
  }

  /**
   * Has a shuffle registered at the server while the caller goes on, unless the server is known to be out of use: then waits.
   *
   * @return waits, and returns what the server has the shuffle as; empty when it falls back. Asked again for a shuffle that
   *     the server has dropped, or Spark has cleaned, it registers it anew. Throws as {@link #register}.
   */
  Supplier<Optional<ShuffleKey>> registerSoon(int shuffleId, int partitions, int maps) {
    ShuffleRegistration registration = this.registration.registerShuffle(shuffleId, partitions, maps, false);
    if (!registration.wasAsked()) {
      settle(registration);
    }
    return () -> settle(registration).map(ShuffleRegistration.Registered::key);
  }

  /**
   * Registers a shuffle at the server.
   *
   * @param pipelined whether a worker relays it
   * @return as {@link ShuffleRegistration#await}, which says what is thrown as well
   */
  Optional<ShuffleRegistration.Registered> register(int shuffleId, int partitions, int maps, boolean pipelined) {
    if (conf.fallback() == FallbackPolicy.ALWAYS) {
      return Optional.empty();
    }
    return settle(registration.registerShuffle(shuffleId, partitions, maps, pipelined));
  }

  private Optional<ShuffleRegistration.Registered> settle(ShuffleRegistration registration) {
    Optional<ShuffleRegistration.Registered> registered = registration.await();
    if (registered.isEmpty()) {
      fellBack = true;
    }
    return registered;
  }
}
