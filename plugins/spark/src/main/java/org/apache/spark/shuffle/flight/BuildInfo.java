package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Properties;

/**
 * What this jar was built as. Spark's shuffle interfaces change between minor versions: the jar runs on those it was
 * compiled against ({@link SparkVersion}) and refuses others.
 *
 * @param version of Flight Shuffle
 * @param sparkMinors the Spark versions this jar is for, such as "4.2" and "4.3"
 */
record BuildInfo(String version, List<String> sparkMinors) {
  private static final String RESOURCE = "/flight-shuffle-spark.properties";

  static BuildInfo read() {
    Properties properties = new Properties();
    try (InputStream in = BuildInfo.class.getResourceAsStream(RESOURCE)) {
      properties.load(in);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new BuildInfo(properties.getProperty("version"), List.of(properties.getProperty("spark.minors").split(" ")));
  }

  /** The running Spark's version ({@code org.apache.spark.SPARK_VERSION}). */
  static String runningSpark() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION();
  }

  /** @throws IllegalStateException when {@code running} is not a Spark this jar is for */
  BuildInfo checkFor(String running) {
    if (sparkMinors.stream().noneMatch(minor -> running.equals(minor) || running.startsWith(minor + "."))) {
      throw new IllegalStateException(
          "flight-shuffle jar for Spark " + String.join(", ", sparkMinors) + " loaded by Spark " + running
              + ": use one of these, or a release of Flight Shuffle that supports this Spark");
    }
    return this;
  }

  /** How a process of this Spark introduces itself to the server. */
  String client() {
    return "flight-shuffle-spark/" + version + " (spark " + runningSpark() + ")";
  }
}
