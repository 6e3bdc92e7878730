package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/**
 * What this jar was built as. Spark's shuffle interfaces change between minor versions, so each has its own jar.
 *
 * @param version of Flight Shuffle
 * @param sparkMinor the Spark versions this jar is for, such as "4.3"
 */
record BuildInfo(String version, String sparkMinor) {
  private static final String RESOURCE = "/flight-shuffle-spark.properties";

  static BuildInfo read() {
    Properties properties = new Properties();
    try (InputStream in = BuildInfo.class.getResourceAsStream(RESOURCE)) {
      properties.load(in);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new BuildInfo(properties.getProperty("version"), properties.getProperty("spark.minor"));
  }

  /** The running Spark's version ({@code org.apache.spark.SPARK_VERSION}). */
  static String runningSpark() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION();
  }

  /** @throws IllegalStateException when {@code running} is not a Spark this jar is for */
  BuildInfo checkFor(String running) {
    if (!running.equals(sparkMinor) && !running.startsWith(sparkMinor + ".")) {
      throw new IllegalStateException(
          "flight-shuffle jar for Spark " + sparkMinor + " loaded by Spark " + running
              + ": run `flight-shuffle spark-conf` in the environment of that Spark to get the right jar");
    }
    return this;
  }

  /** How a process of this Spark introduces itself to the server. */
  String client() {
    return "flight-shuffle-spark/" + version + " (spark " + runningSpark() + ")";
  }
}
