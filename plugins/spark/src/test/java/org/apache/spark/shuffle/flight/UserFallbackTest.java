package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Set;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.junit.jupiter.api.Test;

class UserFallbackTest {
  /** Always has a reason. */
  public static final class Always implements FallbackRule {
    @Override
    public String reason(ShuffleDependency<?, ?, ?> shuffle) {
      return "because";
    }
  }

  /** Has the reason that the configuration gives it. */
  public static final class Configured implements FallbackRule {
    private final String reason;

    public Configured(SparkConf conf) {
      this.reason = conf.get("spark.test.reason");
    }

    @Override
    public String reason(ShuffleDependency<?, ?, ?> shuffle) {
      return reason;
    }
  }

  /** Cannot be made. */
  public static final class Private implements FallbackRule {
    private Private() {}

    @Override
    public String reason(ShuffleDependency<?, ?, ?> shuffle) {
      return null;
    }
  }

  /** Fails when it is made. */
  public static final class Failing implements FallbackRule {
    public Failing() {
      throw new IllegalStateException("on purpose");
    }

    @Override
    public String reason(ShuffleDependency<?, ?, ?> shuffle) {
      return null;
    }
  }

  private static UserFallback of(String rule) {
    return UserFallback.of(new SparkConf(false).set("spark.test.reason", "so").set(FlightConf.FALLBACK_RULE.key(), rule));
  }

  private static String refused(String rule) {
    String message = assertThrows(IllegalArgumentException.class, () -> of(rule)).getMessage();
    assertTrue(message.contains(FlightConf.FALLBACK_RULE.key() + "=" + rule), message);
    return message;
  }

  @Test
  void withoutARuleNothingIsTaken() {
    assertNull(UserFallback.of(new SparkConf(false)).reason(null));
  }

  @Test
  void eachReasonIsToldOnce() {
    UserFallback fallback = of(Always.class.getName());
    assertNotNull(fallback.reason(null));
    assertNotNull(fallback.reason(null));
    assertEquals(Set.of("because"), fallback.told());
  }

  @Test
  void ruleMayReadTheConfiguration() {
    UserFallback fallback = of(Configured.class.getName());
    assertNotNull(fallback.reason(null));
    assertEquals(Set.of("so"), fallback.told());
  }

  @Test
  void reasonsWithoutEndAreNotAllTold() {
    int[] number = {0};
    UserFallback fallback = new UserFallback(shuffle -> "shuffle " + number[0]++);
    for (int i = 0; i < 100; i++) {
      assertNotNull(fallback.reason(null));
    }
    assertEquals(20, fallback.told().size());
  }

  @Test
  void classThatCannotBeUsedIsNamed() {
    assertTrue(refused("org.example.Missing").contains("is not in the jars"));
    assertTrue(refused(String.class.getName()).contains("does not implement"));
    assertTrue(refused(Private.class.getName()).contains("has no public constructor"));
    assertTrue(refused(Failing.class.getName()).contains("cannot be made"));
  }
}
