package org.apache.spark.shuffle.flight;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.ShuffleDataIOUtils;
import org.apache.spark.shuffle.flight.net.Credentials;
import org.apache.spark.shuffle.flight.net.Tokens;

/**
 * The options that say who this application is at the server, and how its connections are encrypted.
 *
 * <p>The cluster secret stays on the driver. It derives the application's token there and hands that to the executors
 * with what the driver's components may add to the configuration: Spark brings those entries to every executor, and
 * redacts this one wherever it shows the configuration, because of the word in its name.
 *
 * @param tlsCa null: plain text; all the others may be null too
 * @param token one of the three that give a token at most
 */
record SecurityConf(
    Path tlsCa, Path tlsCert, Path tlsKey, Path secretFile, Path tokenFile, String token, String app) {
  private static final String APP_FOR_EXECUTORS = "flight.app";
  private static final String TOKEN_FOR_EXECUTORS = "flight.token";
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
   * The driver's credentials; reads the files.
   *
   * @throws IllegalArgumentException for a file that cannot be used; names the option, the file and what to do
   */
  Credentials ofDriver(String name) {
    return ofDriver(name, System.getenv());
  }

  /** @param environment has the token where no option says where it is */
  Credentials ofDriver(String name, Map<String, String> environment) {
    String found = token;
    if (secretFile != null) {
      found = Tokens.ofApp(PrivateFile.secret(secretFile, FlightConf.SECRET_FILE.key()), name);
    } else if (tokenFile != null) {
      found = PrivateFile.token(tokenFile, FlightConf.TOKEN_FILE.key());
    } else if (found == null) {
      String text = environment.getOrDefault(TOKEN_VARIABLE, "").strip();
      found = text.isEmpty() ? null : text;
    }
    return new Credentials(name, found, ClientTls.context(tlsCa, tlsCert, tlsKey));
  }

  /**
   * What the driver adds to the configuration, for {@link #ofExecutor}. Spark prefixes the names.
   *
   * @param run the application's key at the server, which Spark's environment page shows
   */
  static Map<String, String> forExecutors(String run, Credentials credentials) {
    Map<String, String> added = new HashMap<>();
    added.put(APP_FOR_EXECUTORS, run);
    if (credentials.token() != null) {
      added.put(TOKEN_FOR_EXECUTORS, credentials.token());
    }
    return added;
  }

  /** The credentials of the process that runs tasks, from the configuration that the driver has added to. */
  Credentials ofExecutor(SparkConf conf) {
    String prefix = ShuffleDataIOUtils.SHUFFLE_SPARK_CONF_PREFIX();
    return new Credentials(
        Credentials.nameOf(conf.get(prefix + APP_FOR_EXECUTORS, "")), conf.get(prefix + TOKEN_FOR_EXECUTORS, null),
        ClientTls.context(tlsCa, tlsCert, tlsKey));
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
