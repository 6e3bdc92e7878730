package org.apache.spark.shuffle.flight.conf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.client.Credentials;
import org.apache.spark.shuffle.flight.client.HostPort;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SecurityConfTest {
  private static final String SECRET = "0123456789abcdef0123456789abcdef";

  private static final ClientTls NO_TLS = new ClientTls(null, null, null);

  @TempDir Path directory;

  private static SparkConf conf(String... pairs) {
    SparkConf conf = new SparkConf(false);
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(FlightConf.PREFIX + pairs[i], pairs[i + 1]);
    }
    return conf;
  }

  private Path file(String name, String text, String permissions) throws IOException {
    Path path = Files.writeString(directory.resolve(name), text);
    return Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(permissions));
  }

  private static Credentials ofDriver(SparkConf conf, Map<String, String> environment) {
    SecurityConf parsed = SecurityConf.parse(conf);
    return parsed.ofDriver("app-a", parsed.readTls(), environment);
  }

  private static Credentials ofDriver(SparkConf conf) {
    return ofDriver(conf, Map.of());
  }

  private static String refused(String... pairs) {
    return assertThrows(
            IllegalArgumentException.class, () -> ofDriver(conf(pairs)))
        .getMessage();
  }

  @Test
  void nothingSetIsNoTokenAndPlainText() {
    Credentials credentials = ofDriver(conf());
    assertEquals("app-a", credentials.app());
    assertNull(credentials.token());
    assertNull(credentials.tls());
  }

  @Test
  void driverDerivesAndExecutorFindsTheToken() throws IOException {
    SparkConf conf = conf("token.secretFile", file("secret", SECRET + "\r\n", "rw-------").toString());
    Credentials driver = ofDriver(conf);
    assertEquals(Tokens.ofApp(SECRET.getBytes(), "app-a"), driver.token());
    Map<String, String> added = SecurityConf.forExecutors(driver.app() + "~run", "h:9110", driver, NO_TLS);
    added.forEach((key, value) -> conf.set("spark.shuffle.plugin.__config__." + key, value));
    assertEquals(driver, SecurityConf.parse(conf).ofExecutor(conf));
    assertEquals(HostPort.list("h:9110"), SecurityConf.serversOfExecutor(conf, HostPort.list("any:1")));
    assertEquals(HostPort.list("any:1"), SecurityConf.serversOfExecutor(conf(), HostPort.list("any:1")));
    assertFalse(added.containsValue(SECRET));
  }

  @Test
  void tokenComesFromTheEnvironmentWhereNoOptionNamesOne() throws IOException {
    Map<String, String> environment = Map.of("FLIGHT_SHUFFLE_TOKEN", "of-the-environment\n");
    assertEquals("of-the-environment", ofDriver(conf(), environment).token());
    assertEquals("given", ofDriver(conf("token", "given"), environment).token());
    Path path = file("token", "of-the-file", "rw-------");
    assertEquals(
        "of-the-file", ofDriver(conf("token.file", path.toString()), environment).token());
    assertNull(ofDriver(conf(), Map.of("FLIGHT_SHUFFLE_TOKEN", " ")).token());
  }

  @Test
  void firstOfSeveralSecretsMakesTheToken() throws IOException {
    Path path = file("secrets", "\n" + SECRET + "\n" + SECRET.replace('0', 'x') + "\n", "rw-------");
    Credentials driver = ofDriver(conf("token.secretFile", path.toString()));
    assertEquals(Tokens.ofApp(SECRET.getBytes(), "app-a"), driver.token());
  }

  @Test
  void sparkRedactsTokenAndPrivateKey() {
    SparkConf conf = conf("token", "the-token");
    ClientTls.Pem ca = new ClientTls.Pem(FlightConf.TLS_CA, Path.of("ca"), "the-ca");
    ClientTls.Pem cert = new ClientTls.Pem(FlightConf.TLS_CERT, Path.of("cert"), "the-certificate");
    ClientTls tls =
        new ClientTls(ca, cert, new ClientTls.Pem(FlightConf.TLS_KEY, Path.of("key"), "the-private-part"));
    SecurityConf.forExecutors("app-a~run", "h:9110", new Credentials("app-a", "the-token", null), tls)
        .forEach((key, value) -> conf.set("spark.shuffle.plugin.__config__." + key, value));
    String shown = conf.toDebugString();
    assertTrue(shown.contains("app-a"));
    assertTrue(shown.contains("the-ca"));
    assertTrue(shown.contains("the-certificate"));
    assertFalse(shown.contains("the-token"));
    assertFalse(shown.contains("the-private-part"));
    assertFalse(tls.toString().contains("the-private-part"));
    assertFalse(SecurityConf.parse(conf).toString().contains("the-token"));
  }

  @Test
  void tokenOfAFileLosesWhiteSpace() throws IOException {
    Path path = file("token", " the-token\n", "rw-r-----");
    assertEquals("the-token", ofDriver(conf("token.file", path.toString())).token());
  }

  @Test
  void whatContradictsItselfIsNamed() {
    assertTrue(refused("tls.cert", "c").contains("tls.key"));
    assertTrue(refused("tls.cert", "c", "tls.key", "k").contains("without spark.shuffle.flight.tls.ca"));
    assertTrue(refused("token", "t", "token.secretFile", "f").matches(".*token.secretFile and .*token are set.*"));
  }

  @Test
  void filesThatCannotBeUsedAreNamedWithWhatToDo() throws IOException {
    Path loose = file("loose", SECRET, "rw-r--r--");
    assertTrue(refused("token.secretFile", loose.toString()).contains(loose + ": may be read or written by other users; chmod 600"));
    Path brief = file("brief", "brief\n", "rw-------");
    assertTrue(refused("token.secretFile", brief.toString()).contains(brief + ": 5 bytes are too few"));
    Path missing = directory.resolve("missing");
    assertTrue(refused("token.file", missing.toString()).contains(missing + ": cannot be read"));
    assertTrue(refused("tls.ca", missing.toString()).contains("tls.ca=" + missing + ": cannot be read"));
    assertTrue(refused("tls.ca", brief.toString()).contains("must hold certificates in PEM form"));
    Path spaced = file("spaced", "a b", "rw-------");
    assertTrue(refused("token.file", spaced.toString()).contains("holds no token"));
  }
}
