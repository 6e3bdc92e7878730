package org.apache.spark.shuffle.flight.version;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.HashPartitioner;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.UnsafeRowSerializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Product2;
import scala.Tuple2;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * What the plugin does before it shuffles in a Spark that it was not tested with: each method of Spark that it calls must be
 * there, and two jobs of two stages, with Spark's writers and with the row writer, must answer right.
 */
public final class SelfTest {
  private static final Logger LOG = LoggerFactory.getLogger(SelfTest.class);
  private static final int RECORDS = 1_000;
  private static final int KEYS = 7;
  private static final int MAPS = 2;
  private static final int PARTITIONS = 3;
  private static final int ROW_BYTES = 16;
  private static final int MOST_NAMED = 5;

  /** Its thread cannot wait for a job. */
  private static final String SCHEDULER = "dag-scheduler-event-loop";

  private enum State { DUE, RUNNING, PASSED }

  private final String spark;
  private final AtomicReference<State> state;
  private volatile IllegalStateException failure;

  private SelfTest(String spark, State first) {
    this.spark = spark;
    this.state = new AtomicReference<>(first);
  }

  /** The one that {@code build} needs in the running Spark: none at all where it was tested. */
  public static SelfTest of(BuildInfo build, String running) {
    return new SelfTest(running, build.tested(running) ? State.PASSED : State.DUE);
  }

  /**
   * Resolves what {@code roots} use of Spark, unless it was tested.
   *
   * @throws IllegalStateException Spark lacks some of it
   */
  public void link(Class<?>... roots) {
    if (state.get() == State.PASSED) {
      return;
    }
    LOG.warn(
        "Flight Shuffle was not tested with Spark {}: it tests itself before the first shuffle ({}=false refuses such a Spark)",
        spark, FlightConf.ALLOW_UNTESTED.key());
    List<String> missing = SparkLinks.missing(SelfTest.class.getClassLoader(), roots);
    if (!missing.isEmpty()) {
      throw failed(missing.size() + " methods that it calls are not there: " + named(missing), null);
    }
  }

  private static String named(List<String> missing) {
    String first = String.join(", ", missing.subList(0, Math.min(MOST_NAMED, missing.size())));
    return missing.size() > MOST_NAMED ? first + ", ..." : first;
  }

  /**
   * Runs the jobs once, before the first shuffle of the application; their own shuffles pass.
   *
   * @throws IllegalStateException they failed, now or before
   */
  public void run(SparkContext context) {
    run(
        () -> {
          JavaSparkContext jobs = JavaSparkContext.fromSparkContext(context);
          expect("the sums of a reduceByKey", expectedSums(), sums(jobs));
          expect("the sum of rows", (long) RECORDS * (RECORDS - 1) / 2, sumOfRows(jobs));
        });
  }

  void run(Runnable jobs) {
    if (failure != null) {
      throw failure;
    }
    if (Thread.currentThread().getName().equals(SCHEDULER) || !state.compareAndSet(State.DUE, State.RUNNING)) {
      return;
    }
    try {
      jobs.run();
      state.set(State.PASSED);
      LOG.info("Flight Shuffle's self-test passed in Spark {}", spark);
    } catch (RuntimeException e) {
      failure = e instanceof IllegalStateException own && own == failure ? own : failed("a job failed", e);
      throw failure;
    } finally {
      state.compareAndSet(State.RUNNING, State.DUE); // after a checked exception, too, which Scala does not declare
    }
  }

  private void expect(String what, Object expected, Object found) {
    if (!expected.equals(found)) {
      failure = failed(what + " is " + found + ", not " + expected, null);
      throw failure;
    }
  }

  private IllegalStateException failed(String why, Throwable cause) {
    return new IllegalStateException(
        "Flight Shuffle's self-test failed in Spark " + spark + ", which it was not tested with: " + why
            + "; use a Spark it was tested with, or spark.shuffle.manager=sort", cause);
  }

  private static Map<Integer, Integer> expectedSums() {
    return IntStream.range(0, RECORDS).boxed()
        .collect(Collectors.toMap(i -> i % KEYS, i -> i, Integer::sum));
  }

  private static List<Integer> numbers() {
    return IntStream.range(0, RECORDS).boxed().toList();
  }

  private static Map<Integer, Integer> sums(JavaSparkContext context) {
    return Map.copyOf(
        context.parallelize(numbers(), MAPS)
            .mapToPair(i -> new Tuple2<>(i % KEYS, i))
            .reduceByKey(Integer::sum, PARTITIONS)
            .collectAsMap());
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static long sumOfRows(JavaSparkContext context) {
    JavaPairRDD<Integer, UnsafeRow> rows =
        context.parallelize(numbers(), MAPS).mapToPair(i -> new Tuple2<>(i, row(i)));
    ClassTag tag = ClassTag$.MODULE$.Object();
    RDD shuffled =
        new ShuffledRDD(rows.rdd(), new HashPartitioner(PARTITIONS), tag, tag, tag)
            .setSerializer(new UnsafeRowSerializer(1, null));
    return new JavaRDD<Product2<Integer, UnsafeRow>>(shuffled, tag).map(pair -> pair._2().getLong(0)).reduce(Long::sum);
  }

  private static UnsafeRow row(long value) {
    UnsafeRow row = new UnsafeRow(1);
    row.pointTo(new byte[ROW_BYTES], ROW_BYTES);
    row.setLong(0, value);
    return row;
  }
}
