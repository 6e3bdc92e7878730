package org.apache.spark.shuffle.flight.version;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

class BuildInfoTest {
  private final SparkConf conf = new SparkConf(false);

  @Test
  void jarKnowsTheSparkItIsFor() {
    BuildInfo build = BuildInfo.read();
    assertEquals(build, build.checkFor(BuildInfo.runningSpark(), conf));
  }

  @Test
  void everyPatchOfItsMinorVersionsIsTaken() {
    BuildInfo build = new BuildInfo("0.1.0", List.of("4.0", "4.3"));
    for (String running : new String[] {"4.0.0", "4.0.3", "4.3", "4.3.17"}) {
      assertEquals(build, build.checkFor(running, conf));
    }
  }

  @Test
  void laterMinorVersionIsTakenUnlessRefusedByAnOption() {
    BuildInfo build = new BuildInfo("0.1.0", List.of("4.0", "4.3"));
    SparkConf refusing = new SparkConf(false).set("spark.shuffle.flight.allowUntestedSpark", "false");
    for (String running : new String[] {"4.4.0", "4.30.1-SNAPSHOT"}) {
      assertFalse(build.tested(running));
      assertEquals(build, build.checkFor(running, conf));
      String message = assertThrows(IllegalStateException.class, () -> build.checkFor(running, refusing)).getMessage();
      assertTrue(message.contains("Spark 4.0, 4.3 loaded by Spark " + running), message);
      assertTrue(message.contains("spark.shuffle.flight.allowUntestedSpark=true"), message);
    }
  }

  @Test
  void anotherMinorVersionIsRefusedAndNamed() {
    BuildInfo build = new BuildInfo("0.1.0", List.of("4.0", "4.3"));
    for (String running : new String[] {"4.2.1", "5.0.0", "3.5.1"}) {
      String message = assertThrows(IllegalStateException.class, () -> build.checkFor(running, conf)).getMessage();
      assertTrue(message.contains("Spark 4.0, 4.3 loaded by Spark " + running), message);
      assertTrue(message.contains("a release of Flight Shuffle that supports this Spark"), message);
    }
  }
}
