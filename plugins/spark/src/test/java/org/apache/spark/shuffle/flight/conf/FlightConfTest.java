package org.apache.spark.shuffle.flight.conf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.client.HostPort;
import org.junit.jupiter.api.Test;

class FlightConfTest {
  private static SparkConf conf(String... pairs) {
    SparkConf conf = new SparkConf(false);
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(FlightConf.PREFIX + pairs[i], pairs[i + 1]);
    }
    return conf;
  }

  private static String refused(String... pairs) {
    return assertThrows(IllegalArgumentException.class, () -> FlightConf.parse(conf(pairs))).getMessage();
  }

  @Test
  void addressAloneIsEnough() {
    FlightConf parsed = FlightConf.parse(conf("server", "shuffle.example:7337"));
    assertEquals(List.of(new HostPort("shuffle.example", 7337)), parsed.servers());
    assertEquals(FallbackPolicy.AUTO, parsed.fallback());
    assertEquals(1 << 20, parsed.blockSize());
    assertEquals(2 << 20, parsed.batchSize());
    assertTrue(parsed.packRows());
    assertEquals(Duration.ofSeconds(60), parsed.retryWindow());
  }

  @Test
  void unitsAreSparks() {
    FlightConf parsed = FlightConf.parse(conf("server", "h:1", "blockSize", "64k", "ioTimeout", "2min"));
    assertEquals(64 << 10, parsed.blockSize());
    assertEquals(Duration.ofMinutes(2), parsed.ioTimeout());
  }

  @Test
  void severalServersAndEveryKindOfHost() {
    FlightConf parsed = FlightConf.parse(conf("server", "[::1]:80, my_host:7,10.0.0.1:65535"));
    assertEquals(
        List.of(new HostPort("::1", 80), new HostPort("my_host", 7), new HostPort("10.0.0.1", 65535)), parsed.servers());
    assertEquals("[::1]:80,my_host:7,10.0.0.1:65535", parsed.address());
  }

  @Test
  void unknownOptionIsNamedWithTheKnownOnes() {
    String message = refused("server", "h:1", "sever", "h:1");
    assertTrue(message.contains("spark.shuffle.flight.sever"), message);
    for (FlightConf.Option option : FlightConf.OPTIONS) {
      assertTrue(message.contains(option.key()), message);
    }
  }

  @Test
  void missingServerIsNamedUnlessEveryShuffleFallsBack() {
    assertTrue(refused().contains("spark.shuffle.flight.server"));
    assertEquals(FallbackPolicy.ALWAYS, FlightConf.parse(conf("fallback", "always")).fallback());
  }

  @Test
  void impossibleValuesAreNamed() {
    assertTrue(refused("server", "nowhere").contains("nowhere"));
    for (String wrong : List.of("h:99999", "h:0", "h:", ":80", "::1:80", "[]:80", "h:80,", "http://h:80", "h:80/x", "a b:80")) {
      assertTrue(refused("server", wrong).contains("server=" + wrong + ": "), wrong);
    }
    assertTrue(refused("server", "h:1", "fallback", "maybe").contains("auto, never, always"));
    assertTrue(refused("server", "h:1", "packRows", "yes").contains("packRows=yes: not one of true, false"));
    assertTrue(refused("server", "h:1", "blockSize", "1").contains("blockSize"));
    assertTrue(refused("server", "h:1", "blockSize", "huge").contains("huge"));
    assertTrue(refused("server", "h:1", "blockSize", "4m").contains("batchSize"));
    assertTrue(refused("server", "h:1", "ioTimeout", "soon").contains("soon"));
    assertTrue(refused("server", "h:1", "ioTimeout", "0s").contains("ioTimeout"));
  }
}
