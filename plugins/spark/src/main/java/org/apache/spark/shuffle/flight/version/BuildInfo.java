package org.apache.spark.shuffle.flight.version;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.conf.FlightConf;

/**
 * What this jar was built as. Spark's shuffle interfaces change between minor versions: the jar runs on those it was
 * tested with ({@link SparkVersion}), on later minor versions of the same major after a {@link SelfTest}, and refuses others.
 *
 * @param version of Flight Shuffle
 * @param sparkMinors the Spark versions this jar is for, such as "4.2" and "4.3"
 */
public record BuildInfo(String version, List<String> sparkMinors) {
  private static final Pattern MINOR = Pattern.compile("(\\d+)\\.(\\d+)");
  private static final String RESOURCE = "/flight-shuffle-spark.properties";

  public static BuildInfo read() {
    Properties properties = new Properties();
    try (InputStream in = BuildInfo.class.getResourceAsStream(RESOURCE)) {
      properties.load(in);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new BuildInfo(properties.getProperty("version"), List.of(properties.getProperty("spark.minors").split(" ")));
  }

  /** The running Spark's version ({@code org.apache.spark.SPARK_VERSION}). */
  public static String runningSpark() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION();
  }

  /** Whether the jar was tested with the minor version of Spark {@code running}. */
  boolean tested(String running) {
    return sparkMinors.stream().anyMatch(minor -> running.equals(minor) || running.startsWith(minor + "."));
  }

  /** @throws IllegalStateException when {@code running} is not a Spark this jar may run on */
  public BuildInfo checkFor(String running, SparkConf conf) {
    if (tested(running)) {
      return this;
    }
    String what =
        "flight-shuffle jar for Spark " + String.join(", ", sparkMinors) + " loaded by Spark " + running
            + ": use one of these, or a release of Flight Shuffle that supports this Spark";
    if (!isLater(running)) {
      throw new IllegalStateException(what);
    }
    if (!FlightConf.allowUntested(conf)) {
      throw new IllegalStateException(what + "; " + FlightConf.ALLOW_UNTESTED.key() + "=true would let it test itself there");
    }
    return this;
  }

  /** Whether {@code running} has the major version of the newest that was tested, and a later minor one. */
  private boolean isLater(String running) {
    Matcher found = MINOR.matcher(running);
    Matcher newest = MINOR.matcher(sparkMinors.get(sparkMinors.size() - 1));
    return found.lookingAt()
        && newest.lookingAt()
        && found.group(1).equals(newest.group(1))
        && Integer.parseInt(found.group(2)) > Integer.parseInt(newest.group(2));
  }

  /** How a process of this Spark introduces itself to the server. */
  public String client() {
    return "flight-shuffle-spark/" + version + " (spark " + runningSpark() + ")";
  }
}
