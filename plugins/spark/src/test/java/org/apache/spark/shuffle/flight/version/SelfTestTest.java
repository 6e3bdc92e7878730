package org.apache.spark.shuffle.flight.version;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkException;
import org.junit.jupiter.api.Test;

class SelfTestTest {
  private final SelfTest test = SelfTest.of(new BuildInfo("0.1.0", List.of("4.3")), "4.9.0");

  /** As Scala throws what its methods do not declare. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void raise(Throwable any) throws T {
    throw (T) any;
  }

  @Test
  void jobThatFailsIsNeverTakenForOneThatPassed() {
    AtomicInteger runs = new AtomicInteger();
    Runnable jobs =
        () -> {
          runs.incrementAndGet();
          raise(new SparkException("a task failed"));
        };
    assertThrows(SparkException.class, () -> test.run(jobs));
    assertThrows(SparkException.class, () -> test.run(jobs));
    test.run(runs::incrementAndGet);
    test.run(runs::incrementAndGet);
    assertEquals(3, runs.get(), "the next shuffle runs it again, until it has passed");
  }
}
