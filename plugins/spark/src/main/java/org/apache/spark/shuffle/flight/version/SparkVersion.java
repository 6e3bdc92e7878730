package org.apache.spark.shuffle.flight.version;

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
public abstract class SparkVersion {
  private static final class Running {
    static final SparkVersion VARIANT = of(BuildInfo.runningSpark());
  }

  /** The variant for the Spark of this process. */
  public static SparkVersion running() {
    return Running.VARIANT;
  }

  /** @param spark a version such as "4.0.1" */
  private static SparkVersion of(String spark) {
    try {
      // By name: each is compiled against the Spark it is for.
      Class<?> variant = Class.forName(SparkVersion.class.getPackageName() + "." + variant(spark));
      return (SparkVersion) variant.getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("flight-shuffle jar without its class for Spark " + spark, e);
    }
  }

  /** The simple name of the class for a Spark. */
  static String variant(String spark) {
    return spark.startsWith("3.") || spark.startsWith("4.0.") ? "Spark40" : "Spark41";
  }

  /**
   * Takes the checksums over rows out of the dependency of a shuffle whose maps ask {@link #rowChecksums}, which makes them
   * anew: Spark has an object per partition there, and every task of both stages would have them all to deserialize.
   */
  public abstract void omitRowChecksums(ShuffleDependency<?, ?, ?> dependency);

  /** Puts back what {@link #omitRowChecksums} has taken out, for Spark's own writers; else does nothing. */
  public abstract void restoreRowChecksums(ShuffleDependency<?, ?, ?> dependency);

  /** The checksums over the rows of a map output that its dependency asks for. */
  public abstract RowChecksums rowChecksums(ShuffleDependency<?, ?, ?> dependency);

  /** A sorter of records by key; it has no checksums to keep. */
  public abstract <K, V, C> ExternalSorter<K, V, C> sorter(
      TaskContext context, Option<Aggregator<K, V, C>> aggregator, Ordering<K> ordering, Serializer serializer);

  /** By these Spark finds out that a map that ran again has written other rows than before. */
  public interface RowChecksums {
    /** Whether rows have to be shown to {@link #update} at all. */
    boolean wanted();

    void update(int partition, Object key, Object value);

    /** The status of the map output, with the checksum of all its rows. */
    MapStatus mapStatus(BlockManagerId location, long[] lengths, long mapId);
  }
}
