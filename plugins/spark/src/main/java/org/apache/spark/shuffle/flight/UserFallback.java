package org.apache.spark.shuffle.flight;

import java.lang.reflect.Constructor;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The user's {@link FallbackRule}, if there is one. Says each of its reasons once. */
final class UserFallback {
  private static final Logger LOG = LoggerFactory.getLogger(UserFallback.class);

  /** A rule whose reasons name the shuffle would fill the log. */
  private static final int MOST_REASONS = 20;

  private final FallbackRule rule;
  private final Set<String> told = ConcurrentHashMap.newKeySet();

  /** @param rule null: no shuffle falls back by rule */
  UserFallback(FallbackRule rule) {
    this.rule = rule;
  }

  /** @throws IllegalArgumentException for a class that is not there or cannot be used; names it and the option */
  static UserFallback of(SparkConf conf) {
    String name = FlightConf.value(conf, FlightConf.FALLBACK_RULE);
    return new UserFallback(name.isEmpty() ? null : load(name, conf));
  }

  private static FallbackRule load(String name, SparkConf conf) {
    ClassLoader context = Thread.currentThread().getContextClassLoader(); // has the jars of the job
    try {
      Class<?> found = Class.forName(name, true, context != null ? context : UserFallback.class.getClassLoader());
      if (!FallbackRule.class.isAssignableFrom(found)) {
        throw unusable(name, "does not implement " + FallbackRule.class.getName(), null);
      }
      for (Constructor<?> constructor : found.getConstructors()) {
        Class<?>[] wanted = constructor.getParameterTypes();
        if (wanted.length == 0) {
          return (FallbackRule) constructor.newInstance();
        }
        if (wanted.length == 1 && wanted[0] == SparkConf.class) {
          return (FallbackRule) constructor.newInstance(conf);
        }
      }
    } catch (ClassNotFoundException | LinkageError e) {
      throw unusable(name, "is not in the jars of the driver (spark.jars)", e);
    } catch (ReflectiveOperationException e) {
      throw unusable(name, "cannot be made", e);
    }
    throw unusable(name, "has no public constructor that takes nothing or a SparkConf", null);
  }

  private static IllegalArgumentException unusable(String name, String why, Throwable cause) {
    return new IllegalArgumentException(FlightConf.FALLBACK_RULE.key() + "=" + name + ": this class " + why, cause);
  }

  /** Why the rule has {@code shuffle} go to Spark's sort shuffle; null when it has not. */
  String reason(ShuffleDependency<?, ?, ?> shuffle) {
    String reason = rule == null ? null : rule.reason(shuffle);
    if (reason != null && told.size() < MOST_REASONS && told.add(reason)) {
      LOG.warn("shuffles go to Spark's sort shuffle: {} ({})", reason, rule.getClass().getName());
    }
    return reason;
  }

  /** The reasons that were given so far. */
  Set<String> told() {
    return Set.copyOf(told);
  }
}
