package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.grpc.ServerServiceDefinition;
import io.grpc.netty.NettyServerBuilder;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class HostPortTest {
  private static String failure(HostPort server, Duration timeout) {
    try (Connections connections =
        new Connections(List.of(server), timeout, "test", new Credentials(null, null, null))) {
      return assertThrows(FlightException.class, connections::refresh).getMessage();
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"[::1]:80", "my_host:7", "10.0.0.1:65535", "shuffle.example.org:9110"})
  void textIsKept(String text) {
    assertEquals(text, HostPort.parse(text).toString());
  }

  @Test
  void underscoreIsAPartOfANameAndWhatCannotBeResolvedIsNamed() {
    String message = failure(HostPort.parse("no_such_host.invalid:9110"), Duration.ofMillis(500));
    assertTrue(message.contains("no_such_host.invalid:9110 cannot be reached"), message);
    assertTrue(message.contains("host no_such_host.invalid cannot be resolved"), message);
  }

  @ParameterizedTest
  @ValueSource(strings = {"::1", "127.0.0.1", "localhost"})
  void addressesOfEveryKindAreReached(String host) throws IOException {
    InetAddress ip = InetAddress.getByName(host);
    assumeTrue(has(ip), "this machine has no " + ip);
    io.grpc.Server server =
        NettyServerBuilder.forAddress(new InetSocketAddress(ip, 0))
            .addService(ServerServiceDefinition.builder("of.another.kind").build())
            .build()
            .start();
    try {
      String message = failure(new HostPort(host, server.getPort()), Duration.ofSeconds(30));
      assertTrue(message.contains("answers gRPC, but not as a Flight Shuffle endpoint"), message);
    } finally {
      server.shutdownNow();
    }
  }

  private static boolean has(InetAddress ip) {
    try (ServerSocket socket = new ServerSocket(0, 1, ip)) {
      return socket.isBound();
    } catch (IOException e) {
      return false;
    }
  }
}
