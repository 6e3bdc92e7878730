package org.apache.spark.shuffle.flight.client;

import java.util.List;
import java.util.stream.Stream;

/** The address of an endpoint: {@code HOST:PORT}. The host is a name, underscores allowed, or an IP address. */
public record HostPort(String host, int port) {
  /** @throws IllegalArgumentException {@code text} is not {@code HOST:PORT}, an IPv6 address in brackets */
  public static HostPort parse(String text) {
    int colon = text.lastIndexOf(':');
    String host = text.substring(0, Math.max(0, colon));
    boolean bracketed = host.startsWith("[") && host.endsWith("]");
    String name = bracketed ? host.substring(1, host.length() - 1) : host;
    boolean possible = !name.isEmpty() && (bracketed || name.indexOf(':') < 0) && name.chars().noneMatch(HostPort::isForeign);
    if (!possible || !text.substring(colon + 1).matches("[0-9]{1,5}")) {
      throw notAnAddress(text);
    }
    int port = Integer.parseInt(text.substring(colon + 1));
    if (port == 0 || port >= 1 << 16) {
      throw notAnAddress(text);
    }
    return new HostPort(name, port);
  }

  /** Of several addresses with commas between them, each once. */
  public static List<HostPort> list(String text) {
    return Stream.of(text.split(",", -1)).map(String::strip).map(HostPort::parse).distinct().toList();
  }

  private static boolean isForeign(int character) {
    return character <= ' ' || "/@[]%?#\"'\\,".indexOf(character) >= 0;
  }

  private static IllegalArgumentException notAnAddress(String text) {
    return new IllegalArgumentException(
        "'" + text + "' is not HOST:PORT (no scheme, no path; an IPv6 address in brackets; commas between several)");
  }

  /** The host as HTTP/2 and TLS name it. */
  String authority() {
    return host.indexOf(':') < 0 ? host : "[" + host + "]";
  }

  @Override
  public String toString() {
    return authority() + ":" + port;
  }
}
