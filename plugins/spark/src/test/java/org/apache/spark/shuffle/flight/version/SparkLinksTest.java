package org.apache.spark.shuffle.flight.version;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.spark.shuffle.flight.FlightShuffleDataIO;
import org.apache.spark.shuffle.flight.FlightShuffleManager;
import org.junit.jupiter.api.Test;

class SparkLinksTest {
  private final ClassLoader loader = getClass().getClassLoader();

  @Test
  void runningSparkHasAllThatIsUsed() {
    assertEquals(
        List.of(),
        SparkLinks.missing(
            loader, FlightShuffleManager.class, FlightShuffleDataIO.class, SparkVersion.running().getClass()));
  }

  @Test
  void methodThatSparkDoesNotHaveIsNamed() {
    // The class of our reader, with another name of the same length for the method that it asks for locations.
    String there = "getMapSizesByExecutorId";
    String missing = "getMapSizesByExecutorIx";
    ClassLoader changed =
        new ClassLoader(loader) {
          @Override
          public InputStream getResourceAsStream(String name) {
            InputStream found = super.getResourceAsStream(name);
            return found != null && name.endsWith("/BlocksByWorker.class") ? replaced(found, there, missing) : found;
          }
        };
    List<String> found = SparkLinks.missing(changed, FlightShuffleManager.class);
    assertEquals(1, found.size(), found.toString());
    assertTrue(found.get(0).startsWith("org.apache.spark.MapOutputTracker." + missing + "("), found.get(0));
  }

  private static InputStream replaced(InputStream in, String from, String to) {
    try (in) {
      String bytes = new String(in.readAllBytes(), StandardCharsets.ISO_8859_1);
      assertTrue(bytes.contains(from));
      return new ByteArrayInputStream(bytes.replace(from, to).getBytes(StandardCharsets.ISO_8859_1));
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }
}
