package org.apache.spark.shuffle.flight.conf;

import java.util.Locale;

/** When a shuffle goes to Spark's sort shuffle instead of the server: {@code spark.shuffle.flight.fallback}. */
public enum FallbackPolicy {
  /** When the server cannot take it. */
  AUTO,
  /** Not at all: the job fails, naming the server. */
  NEVER,
  /** Each one: the server is not asked. */
  ALWAYS;

  static FallbackPolicy parse(String text) {
    for (FallbackPolicy policy : values()) {
      if (policy.name().equals(text.toUpperCase(Locale.ROOT))) {
        return policy;
      }
    }
    throw new IllegalArgumentException(
        FlightConf.FALLBACK.key() + "=" + text + ": not one of auto, never, always");
  }
}
