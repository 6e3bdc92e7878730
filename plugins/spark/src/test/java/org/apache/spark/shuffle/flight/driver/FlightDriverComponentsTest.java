package org.apache.spark.shuffle.flight.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Optional;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.Driver;
import org.junit.jupiter.api.Test;

/** Whether Spark may take map outputs for safe when their executors leave. */
class FlightDriverComponentsTest {
  private static FlightDriverComponents components(String fallback) throws IOException {
    String nobody;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      nobody = "127.0.0.1:" + socket.getLocalPort();
    }
    SparkConf conf =
        new SparkConf(false)
            .set(FlightConf.SERVER.key(), nobody)
            .set(FlightConf.CONNECT_TIMEOUT.key(), "300ms")
            .set(FlightConf.FALLBACK.key(), fallback);
    return new FlightDriverComponents(
        FlightConf.parse(conf), "test", Driver.getDefaultInstance(), "test client", shuffle -> null);
  }

  @Test
  void storageIsReliableUntilSomethingFallsBack() throws IOException {
    assertTrue(components("auto").supportsReliableStorage());
    assertTrue(components("never").supportsReliableStorage());
  }

  @Test
  void alwaysFallingBackIsNotReliableAndAsksNobody() throws IOException {
    FlightDriverComponents components = components("always");
    assertTrue(components.initializeApplication().isEmpty());
    assertFalse(components.supportsReliableStorage());
    assertEquals(Optional.empty(), components.register(0, 1, 1, false));
    components.cleanupApplication();
  }

  @Test
  void autoWithoutServerIsNotReliableFromTheStart() throws IOException {
    FlightDriverComponents components = components("auto");
    components.initializeApplication();
    assertFalse(components.supportsReliableStorage());
    assertEquals(Optional.empty(), components.register(0, 1, 1, false));
    components.cleanupApplication();
  }

  @Test
  void neverWithoutServerFailsAtTheStart() throws IOException {
    FlightDriverComponents components = components("never");
    assertThrows(UncheckedIOException.class, components::initializeApplication);
  }
}
