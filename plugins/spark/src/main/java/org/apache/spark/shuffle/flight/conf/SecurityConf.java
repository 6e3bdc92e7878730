package org.apache.spark.shuffle.flight.conf;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.ShuffleDataIOUtils;
import org.apache.spark.shuffle.flight.client.Credentials;
import org.apache.spark.shuffle.flight.client.HostPort;

/**
 * The options that say who this application is at the server, and how its connections are encrypted.
 *
 * <p>The cluster secret stays on the driver. It derives the application's token there, reads the files of TLS, and hands
 * both to the executors with what the driver's components may add to the configuration: Spark brings those entries to every
 * executor, and redacts token and private key wherever it shows the configuration, because of the words in their names.
 *
 * @param tlsCa null: plain text; all the others may be null too
 * @param token one of the three that give a token at most
 */
public record SecurityConf(
    Path tlsCa, Path tlsCert, Path tlsKey, Path secretFile, Path tokenFile, String token, String app) {
  private static final String APP_FOR_EXECUTORS = "flight.app";
  private static final String SERVERS_FOR_EXECUTORS = "flight.servers";
  private static final String TOKEN_FOR_EXECUTORS = "flight.token";
  private static final String CA_FOR_EXECUTORS = "flight.tls.ca";
  private static final String CERT_FOR_EXECUTORS = "flight.tls.cert";
  private static final String KEY_FOR_EXECUTORS = "flight.tls.key.secret";
  private static final String TOKEN_VARIABLE = "FLIGHT_SHUFFLE_TOKEN";

  /** @throws IllegalArgumentException for options that contradict each other; names them */
  static SecurityConf parse(SparkConf conf) {
    SecurityConf parsed =
        new SecurityConf(
            path(conf, FlightConf.TLS_CA), path(conf, FlightConf.TLS_CERT), path(conf, FlightConf.TLS_KEY),
            path(conf, FlightConf.SECRET_FILE), path(conf, FlightConf.TOKEN_FILE), text(conf, FlightConf.TOKEN),
            text(conf, FlightConf.APP));
    if ((parsed.tlsCert == null) != (parsed.tlsKey == null)) {
      throw new IllegalArgumentException(
          FlightConf.TLS_CERT.key() + " and " + FlightConf.TLS_KEY.key() + " belong together: set both or none");
    }
    if (parsed.tlsCert != null && parsed.tlsCa == null) {
      throw new IllegalArgumentException(
          FlightConf.TLS_CERT.key() + " is set without " + FlightConf.TLS_CA.key()
              + ", the certificate of who signed the server's: without it nothing is encrypted");
    }
    List<FlightConf.Option> given =
        List.of(FlightConf.SECRET_FILE, FlightConf.TOKEN_FILE, FlightConf.TOKEN).stream()
            .filter(option -> text(conf, option) != null)
            .toList();
    if (given.size() > 1) {
      throw new IllegalArgumentException(
          "both " + given.get(0).key() + " and " + given.get(1).key() + " are set: one is enough, leave out the other");
    }
    return parsed;
  }

  /**
   * What the files of TLS hold, on the driver.
   *
   * @throws IllegalArgumentException for a file that cannot be read; names the option, the file and what to do
   */
  public ClientTls readTls() {
    return new ClientTls(
        ClientTls.Pem.read(FlightConf.TLS_CA, tlsCa), ClientTls.Pem.read(FlightConf.TLS_CERT, tlsCert),
        ClientTls.Pem.read(FlightConf.TLS_KEY, tlsKey));
  }

  /**
   * The driver's credentials; reads the file of the token or secret.
   *
   * @throws IllegalArgumentException for a file that cannot be used; names the option, the file and what to do
   */
  public Credentials ofDriver(String name, ClientTls tls) {
    return ofDriver(name, tls, System.getenv());
  }

  /** @param environment has the token where no option says where it is */
  Credentials ofDriver(String name, ClientTls tls, Map<String, String> environment) {
    String found = token;
    if (secretFile != null) {
      found = Tokens.ofApp(PrivateFile.secret(secretFile, FlightConf.SECRET_FILE.key()), name);
    } else if (tokenFile != null) {
      found = PrivateFile.token(tokenFile, FlightConf.TOKEN_FILE.key());
    } else if (found == null) {
      String text = environment.getOrDefault(TOKEN_VARIABLE, "").strip();
      found = text.isEmpty() ? null : text;
    }
    return new Credentials(name, found, tls.context());
  }

  /**
   * What the driver adds to the configuration, for {@link #ofExecutor}. Spark prefixes the names.
   *
   * @param run the application's key at the server, which Spark's environment page shows
   * @param servers the masters of its registry
   */
  public static Map<String, String> forExecutors(String run, String servers, Credentials credentials, ClientTls tls) {
    Map<String, String> added = new HashMap<>();
    added.put(APP_FOR_EXECUTORS, run);
    added.put(SERVERS_FOR_EXECUTORS, servers);
    if (credentials.token() != null) {
      added.put(TOKEN_FOR_EXECUTORS, credentials.token());
    }
    addText(added, CA_FOR_EXECUTORS, tls.ca());
    addText(added, CERT_FOR_EXECUTORS, tls.cert());
    addText(added, KEY_FOR_EXECUTORS, tls.key());
    return added;
  }

  private static void addText(Map<String, String> added, String name, ClientTls.Pem pem) {
    if (pem != null) {
      added.put(name, pem.text());
    }
  }

  /** The credentials of the process that runs tasks, from the configuration that the driver has added to. */
  public Credentials ofExecutor(SparkConf conf) {
    ClientTls tls =
        new ClientTls(
            passed(conf, CA_FOR_EXECUTORS, FlightConf.TLS_CA, tlsCa),
            passed(conf, CERT_FOR_EXECUTORS, FlightConf.TLS_CERT, tlsCert),
            passed(conf, KEY_FOR_EXECUTORS, FlightConf.TLS_KEY, tlsKey));
    return new Credentials(
        Credentials.nameOf(added(conf, APP_FOR_EXECUTORS, "")), added(conf, TOKEN_FOR_EXECUTORS, null), tls.context());
  }

  /** The masters that the process which runs tasks calls: of the application's registry, if the driver has found it. */
  public static List<HostPort> serversOfExecutor(SparkConf conf, List<HostPort> configured) {
    String servers = added(conf, SERVERS_FOR_EXECUTORS, null);
    return servers == null ? configured : HostPort.list(servers);
  }

  private static ClientTls.Pem passed(SparkConf conf, String name, FlightConf.Option option, Path path) {
    String text = added(conf, name, null);
    return text == null ? null : new ClientTls.Pem(option, path, text);
  }

  private static String added(SparkConf conf, String name, String defaultValue) {
    return conf.get(ShuffleDataIOUtils.SHUFFLE_SPARK_CONF_PREFIX() + name, defaultValue);
  }

  /** Without the token. */
  @Override
  public String toString() {
    return "SecurityConf[tlsCa=" + tlsCa + ", tlsCert=" + tlsCert + ", app=" + app + "]";
  }

  private static Path path(SparkConf conf, FlightConf.Option option) {
    String text = text(conf, option);
    return text == null ? null : Path.of(text);
  }

  private static String text(SparkConf conf, FlightConf.Option option) {
    String text = FlightConf.value(conf, option).strip();
    return text.isEmpty() ? null : text;
  }
}
