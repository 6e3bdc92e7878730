package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class BuildInfoTest {
  @Test
  void jarKnowsTheSparkItIsFor() {
    BuildInfo build = BuildInfo.read();
    assertEquals(build, build.checkFor(BuildInfo.runningSpark()));
  }

  @Test
  void anotherMinorVersionIsRefusedAndNamed() {
    BuildInfo build = new BuildInfo("0.1.0", "4.3");
    for (String running : new String[] {"4.2.1", "4.30.0", "3.5.1"}) {
      String message = assertThrows(IllegalStateException.class, () -> build.checkFor(running)).getMessage();
      assertTrue(message.contains("Spark 4.3 loaded by Spark " + running), message);
      assertTrue(message.contains("flight-shuffle spark-conf"), message);
    }
  }
}
