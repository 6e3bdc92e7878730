package org.apache.spark.shuffle.flight;

import org.apache.spark.Aggregator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.math.Ordering;

/**
 * What we use of Spark that its minor versions have differently; all else compiles to the same bytes against each of
 * them, which {@code scripts/jvm -Pversions} checks. Each variant is compiled against the Spark it is for, and only the
 * running Spark's is loaded.
 */
abstract class SparkVersion {
  private static final String SPARK_4_0 = "org.apache.spark.shuffle.flight.Spark40";

  /** The variant for the Spark of this process. */
  static SparkVersion running() {
    return of(BuildInfo.runningSpark());
  }

  /** @param spark a version such as "4.0.1" */
  static SparkVersion of(String spark) {
    if (!spark.startsWith("4.0.")) {
      return new Spark41();
    }
    try {
      // By name: it is compiled after this class, against another Spark.
      return (SparkVersion) Class.forName(SPARK_4_0).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("flight-shuffle jar without its class for Spark " + spark, e);
    }
  }

  /**
   * Takes the checksums over rows out of the dependency of a shuffle whose maps ask {@link #rowChecksums}, which makes them
   * anew: Spark has an object per partition there, and every task of both stages would have them all to deserialize.
   */
  abstract void omitRowChecksums(ShuffleDependency<?, ?, ?> dependency);

  /** Puts back what {@link #omitRowChecksums} has taken out, for Spark's own writers; else does nothing. */
  abstract void restoreRowChecksums(ShuffleDependency<?, ?, ?> dependency);

  /** The checksums over the rows of a map output that its dependency asks for. */
  abstract RowChecksums rowChecksums(ShuffleDependency<?, ?, ?> dependency);

  /** A sorter of records by key; it has no checksums to keep. */
  abstract <K, V, C> ExternalSorter<K, V, C> sorter(
      TaskContext context, Option<Aggregator<K, V, C>> aggregator, Ordering<K> ordering, Serializer serializer);

  /** By these Spark finds out that a map that ran again has written other rows than before. */
  interface RowChecksums {
    /** Whether rows have to be shown to {@link #update} at all. */
    boolean wanted();

    void update(int partition, Object key, Object value);

    /** The status of the map output, with the checksum of all its rows. */
    MapStatus mapStatus(BlockManagerId location, long[] lengths, long mapId);
  }
}
