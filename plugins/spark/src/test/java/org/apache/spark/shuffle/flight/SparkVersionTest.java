package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SparkVersionTest {
  @Test
  void eachSparkHasItsVariant() {
    assertEquals("Spark40", SparkVersion.of("4.0.0").getClass().getSimpleName());
    assertEquals("Spark40", SparkVersion.of("4.0.17").getClass().getSimpleName());
    for (String later : new String[] {"4.1.0", "4.2.1", "4.3.0"}) {
      assertEquals("Spark41", SparkVersion.of(later).getClass().getSimpleName());
    }
  }
}
