package org.apache.spark.shuffle.flight.version;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SparkVersionTest {
  @Test
  void eachSparkHasItsVariant() {
    for (String before41 : new String[] {"3.5.1", "3.5.17", "4.0.0", "4.0.17"}) {
      assertEquals("Spark40", SparkVersion.variant(before41));
    }
    for (String later : new String[] {"4.1.0", "4.2.1", "4.3.0", "4.10.0"}) {
      assertEquals("Spark41", SparkVersion.variant(later));
    }
  }

  @Test
  void runningSparkHasItsVariantInThisJar() {
    assertEquals(SparkVersion.variant(BuildInfo.runningSpark()), SparkVersion.running().getClass().getSimpleName());
  }
}
