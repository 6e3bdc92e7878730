package org.apache.spark.shuffle.flight.conf;

import java.time.Duration;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.shuffle.flight.client.HostPort;
import scala.Tuple2;

/**
 * The options of the plugin, {@code spark.shuffle.flight.*}, parsed once.
 *
 * @param servers the control endpoints of the masters; empty when every shuffle falls back
 * @param connectTimeout how long a connection or a control call is tried
 * @param ioTimeout how long a stream may be silent
 * @param retryWindow how long a worker that cannot be reached is tried again before the task fails
 * @param blockSize bytes after which a partition is cut into another block
 * @param batchSize payload bytes of one message, and of the buffer of a map task
 * @param rowMemory bytes one map task may buffer rows in
 * @param packRows whether rows are packed by column
 * @param handOver whether map outputs may be written to and read from the files of a worker on this host
 * @param replicas workers that hold each map output
 * @param near label of workers to prefer where none is at the executor's host; or empty
 * @param only label that workers need to get map outputs of the application; or empty
 * @param flushTimeout how long a row of a pipelined shuffle may wait for others to go with it
 * @param relayWorkers most workers that share the partitions of one pipelined shuffle
 * @param ui whether Spark's pages show the shuffles
 * @param security how this application shows who it is, and how its connections are encrypted
 */
public record FlightConf(
    List<HostPort> servers, FallbackPolicy fallback, Duration connectTimeout, Duration ioTimeout, Duration retryWindow,
    int blockSize, int batchSize, int rowMemory, boolean packRows, boolean handOver, int replicas, String near, String only,
    Duration flushTimeout, int relayWorkers, boolean ui, SecurityConf security) {

  /** One option: name, default (null: none) and help text. */
  public record Option(String key, String defaultValue, String help) {}

  static final String PREFIX = "spark.shuffle.flight.";

  public static final Option SERVER =
      new Option(
          PREFIX + "server", null,
          "HOST:PORT of the control endpoint of `flight-shuffle server`; those of several masters with commas between them; "
              + "where several registries share the workers, of any of them");
  public static final Option FALLBACK =
      new Option(PREFIX + "fallback", "auto", "auto, never or always: when a shuffle goes to Spark's sort shuffle");
  public static final Option FALLBACK_RULE =
      new Option(
          PREFIX + "fallbackRule", "",
          "your class that implements `org.apache.spark.shuffle.flight.FallbackRule` and chooses shuffles for"
              + " Spark's sort shuffle");
  public static final Option CONNECT_TIMEOUT =
      new Option(PREFIX + "connectTimeout", "10s", "how long a connection or a control call is tried");
  public static final Option IO_TIMEOUT =
      new Option(PREFIX + "ioTimeout", "120s", "how long a stream may be silent before it counts as broken");
  public static final Option RETRY_WINDOW =
      new Option(
          PREFIX + "retryWindow", "60s",
          "how long a worker that cannot be reached is tried again before the task fails, and with"
              + " `fallback=never` the server before the job does");
  public static final Option BLOCK_SIZE =
      new Option(PREFIX + "blockSize", "1m", "a longer run of one partition is cut into several blocks");
  public static final Option BATCH_SIZE =
      new Option(PREFIX + "batchSize", "2m", "payload of one message; a map task has a buffer of this size");
  public static final Option ROW_MEMORY =
      new Option(
          PREFIX + "rowMemory", "128m",
          "most memory in which a map task of an SQL exchange buffers rows (32m up to 2,048 partitions); with"
              + " less than 16k per partition of this or of the task's memory, Spark's own writers do the work");
  public static final Option PACK_ROWS =
      new Option(
          PREFIX + "packRows", "true",
          "true: rows are packed by column before they are compressed, where that makes them smaller");
  public static final Option HAND_OVER =
      new Option(
          PREFIX + "handOver", "auto",
          "auto: executors that see the server's files, on the same host, write and read them directly; off:"
              + " they use the network");
  public static final Option REPLICAS =
      new Option(
          PREFIX + "replicas", "1",
          "1 or 2 workers hold each map output; with 2 no map runs again when a worker is lost, and a commit"
              + " waits for the second copy");
  public static final Option NEAR =
      new Option(
          PREFIX + "near", "",
          "label of workers, such as rack=a, that get map outputs if no worker of an executor's host takes them");
  public static final Option ONLY =
      new Option(
          PREFIX + "only", "",
          "label of workers: only those get map outputs of the application");
  public static final Option FLUSH_TIMEOUT =
      new Option(
          PREFIX + "flushTimeout", "5ms",
          "real-time mode: how long a row may wait for others to go with it");
  public static final Option RELAY_WORKERS =
      new Option(
          PREFIX + "relayWorkers", "4",
          "real-time mode: most workers that share a shuffle's partitions, four or more each");
  public static final Option UI =
      new Option(
          PREFIX + "ui", "true",
          "true: Spark's pages have a tab Flight Shuffle, and its event log what the history server needs for"
              + " it");
  public static final Option TLS_CA =
      new Option(
          PREFIX + "tls.ca", "",
          "file with certificates (PEM) that signed the server's: connections use TLS");
  public static final Option TLS_CERT =
      new Option(
          PREFIX + "tls.cert", "",
          "file with this client's certificate (PEM), for a server that asks for one");
  public static final Option TLS_KEY =
      new Option(
          PREFIX + "tls.key", "", "file with the private key of tls.cert (PEM, PKCS #8)");
  public static final Option SECRET_FILE =
      new Option(
          PREFIX + "token.secretFile", "",
          "file with the cluster secret, from which the driver derives the application's token");
  public static final Option TOKEN_FILE =
      new Option(
          PREFIX + "token.file", "",
          "file with a token; that of an application needs its name, see app");
  public static final Option TOKEN =
      new Option(
          PREFIX + "token", "",
          "a token itself, or give it by the driver's FLIGHT_SHUFFLE_TOKEN: users of the machine see arguments");
  public static final Option APP =
      new Option(
          PREFIX + "app", "",
          "the application's name at the server, for tokens and quotas; runs of one name share no data;"
              + " default: a new name for each run");

  public static final Option ALLOW_UNTESTED =
      new Option(
          PREFIX + "allowUntestedSpark", "true",
          "true: a minor version of Spark 4 later than the tested ones is used after a self-test; false: it is"
              + " refused");

  /** Every option there is. */
  public static final List<Option> OPTIONS =
      List.of(
          SERVER, FALLBACK, FALLBACK_RULE, CONNECT_TIMEOUT, IO_TIMEOUT, RETRY_WINDOW, BLOCK_SIZE, BATCH_SIZE, ROW_MEMORY, PACK_ROWS,
          HAND_OVER, REPLICAS, NEAR, ONLY, FLUSH_TIMEOUT, RELAY_WORKERS, UI, TLS_CA, TLS_CERT, TLS_KEY, SECRET_FILE, TOKEN_FILE,
          TOKEN, APP, ALLOW_UNTESTED);

  private static final Pattern LABEL = Pattern.compile("[A-Za-z0-9._-]{1,64}=[A-Za-z0-9._-]{1,64}");
  private static final int SMALLEST_BLOCK = 1 << 12;
  private static final int LARGEST_BATCH = 64 << 20;
  private static final int LARGEST_ROW_MEMORY = 1 << 30;

  /** @throws IllegalArgumentException for an unknown option or a value that cannot be; names both */
  public static FlightConf parse(SparkConf conf) {
    for (Tuple2<String, String> entry : conf.getAllWithPrefix(PREFIX)) {
      String key = PREFIX + entry._1();
      if (OPTIONS.stream().noneMatch(option -> option.key().equals(key))) {
        throw new IllegalArgumentException(
            "unknown option " + key + "; known are " + String.join(", ", OPTIONS.stream().map(Option::key).toList()));
      }
    }
    FallbackPolicy fallback = FallbackPolicy.parse(value(conf, FALLBACK));
    String server = value(conf, SERVER);
    if (server == null && fallback != FallbackPolicy.ALWAYS) {
      throw new IllegalArgumentException(SERVER.key() + " is not set: " + SERVER.help());
    }
    int blockSize = size(conf, BLOCK_SIZE, SMALLEST_BLOCK, LARGEST_BATCH);
    int batchSize = size(conf, BATCH_SIZE, SMALLEST_BLOCK, LARGEST_BATCH);
    int rowMemory = size(conf, ROW_MEMORY, 0, LARGEST_ROW_MEMORY);
    if (blockSize > batchSize) {
      throw new IllegalArgumentException(
          BLOCK_SIZE.key() + " (" + blockSize + " bytes) is larger than " + BATCH_SIZE.key() + " (" + batchSize + ")");
    }
    return new FlightConf(
        server == null ? List.of() : servers(server), fallback, duration(conf, CONNECT_TIMEOUT),
        duration(conf, IO_TIMEOUT), duration(conf, RETRY_WINDOW), blockSize, batchSize,
        rowMemory, flag(conf, PACK_ROWS), choice(conf, HAND_OVER, "auto", "off") == 0,
        1 + choice(conf, REPLICAS, "1", "2"), label(conf, NEAR), label(conf, ONLY),
        duration(conf, FLUSH_TIMEOUT), count(conf, RELAY_WORKERS), flag(conf, UI), SecurityConf.parse(conf));
  }

  /** Whether the plugin may run in a Spark that it was not tested with. */
  public static boolean allowUntested(SparkConf conf) {
    return flag(conf, ALLOW_UNTESTED);
  }

  private static boolean flag(SparkConf conf, Option option) {
    return choice(conf, option, "true", "false") == 0;
  }

  /** The place in {@code known} of what is set. */
  private static int choice(SparkConf conf, Option option, String... known) {
    int place = List.of(known).indexOf(value(conf, option));
    if (place < 0) {
      throw new IllegalArgumentException(
          option.key() + "=" + value(conf, option) + ": not one of " + String.join(", ", known));
    }
    return place;
  }

  private static String label(SparkConf conf, Option option) {
    String label = value(conf, option);
    if (!label.isEmpty() && !LABEL.matcher(label).matches()) {
      throw new IllegalArgumentException(
          option.key() + "=" + label + ": not KEY=VALUE, each 1 to 64 characters of A-Z a-z 0-9 . _ -");
    }
    return label;
  }

  /** The control endpoints as the user wrote them. */
  public String address() {
    return String.join(",", servers.stream().map(HostPort::toString).toList());
  }

  public static String value(SparkConf conf, Option option) {
    return conf.contains(option.key()) ? conf.get(option.key()) : option.defaultValue();
  }

  private static Duration duration(SparkConf conf, Option option) {
    try {
      long millis = JavaUtils.timeStringAsMs(value(conf, option));
      if (millis > 0) {
        return Duration.ofMillis(millis);
      }
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(option.key() + "=" + value(conf, option) + ": not a duration such as 30s", e);
    }
    throw new IllegalArgumentException(option.key() + "=" + value(conf, option) + ": must be longer than 0");
  }

  private static int count(SparkConf conf, Option option) {
    try {
      int count = Integer.parseInt(value(conf, option));
      if (count > 0) {
        return count;
      }
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(option.key() + "=" + value(conf, option) + ": not a number such as 4", e);
    }
    throw new IllegalArgumentException(option.key() + "=" + value(conf, option) + ": must be 1 at least");
  }

  private static int size(SparkConf conf, Option option, int smallest, int largest) {
    long bytes;
    try {
      bytes = JavaUtils.byteStringAsBytes(value(conf, option));
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(option.key() + "=" + value(conf, option) + ": not a size such as 1m", e);
    }
    if (bytes < smallest || bytes > largest) {
      throw new IllegalArgumentException(
          option.key() + "=" + value(conf, option) + ": must lie between " + smallest
              + " and " + largest + " bytes");
    }
    return (int) bytes;
  }

  private static List<HostPort> servers(String text) {
    try {
      return HostPort.list(text);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(SERVER.key() + "=" + text + ": " + e.getMessage(), e);
    }
  }
}
