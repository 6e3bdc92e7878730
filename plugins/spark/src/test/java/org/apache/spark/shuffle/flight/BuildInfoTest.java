package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class BuildInfoTest {
  @Test
  void jarKnowsTheSparkItIsFor() {
    BuildInfo build = BuildInfo.read();
    assertEquals(build, build.checkFor(BuildInfo.runningSpark()));
  }

  @Test
  void everyPatchOfItsMinorVersionsIsTaken() {
    BuildInfo build = new BuildInfo("0.1.0", List.of("4.0", "4.3"));
    for (String running : new String[] {"4.0.0", "4.0.3", "4.3", "4.3.17"}) {
      assertEquals(build, build.checkFor(running));
    }
  }

  @Test
  void anotherMinorVersionIsRefusedAndNamed() {
    BuildInfo build = new BuildInfo("0.1.0", List.of("4.0", "4.3"));
    for (String running : new String[] {"4.2.1", "4.30.0", "3.5.1"}) {
      String message = assertThrows(IllegalStateException.class, () -> build.checkFor(running)).getMessage();
      assertTrue(message.contains("Spark 4.0, 4.3 loaded by Spark " + running), message);
      assertTrue(message.contains("a release of Flight Shuffle that supports this Spark"), message);
    }
  }
}
