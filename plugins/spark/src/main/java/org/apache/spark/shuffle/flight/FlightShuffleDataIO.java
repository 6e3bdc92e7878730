package org.apache.spark.shuffle.flight;

import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.api.ShuffleDataIO;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.api.ShuffleExecutorComponents;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.driver.FlightDriverComponents;
import org.apache.spark.shuffle.flight.proto.Driver;
import org.apache.spark.shuffle.flight.version.BuildInfo;
import org.apache.spark.shuffle.flight.version.SelfTest;
import org.apache.spark.shuffle.flight.version.SparkVersion;
import org.apache.spark.util.Utils;

/**
 * {@code spark.shuffle.sort.io.plugin.class}: the output of Spark's own writers, and the driver's work when an
 * application starts and ends. Spark makes one on the driver; on executors {@link FlightShuffleManager}'s inner
 * {@code SortShuffleManager} makes one, with a configuration that names the manager's {@link FlightExecutor}.
 */
public final class FlightShuffleDataIO implements ShuffleDataIO {
  private final SparkConf conf;
  private final BuildInfo build;

  public FlightShuffleDataIO(SparkConf conf) {
    this.conf = conf;
    this.build = BuildInfo.read().checkFor(BuildInfo.runningSpark(), conf);
  }

  @Override
  public ShuffleDriverComponents driver() {
    SelfTest.of(build, BuildInfo.runningSpark())
        .link(FlightShuffleManager.class, FlightShuffleDataIO.class, SparkVersion.running().getClass());
    return new FlightDriverComponents(
        FlightConf.parse(conf),
        conf.get("spark.app.name", ""),
        describe(conf),
        build.client(),
        UserFallback.of(conf)::reason);
  }

  /** This process, which drives the application of {@code conf}; {@code SparkContext} sets the host in it. */
  static Driver describe(SparkConf conf) {
    return Driver.newBuilder()
        .setUser(Utils.getCurrentUserName()) // the sparkUser of a SparkContext
        .setHost(conf.get("spark.driver.host", ""))
        .setBegan(System.currentTimeMillis() / 1000.0)
        .build();
  }

  @Override
  public ShuffleExecutorComponents executor() {
    return new FlightExecutorComponents(FlightExecutor.of(conf));
  }
}
