package org.apache.spark.shuffle.flight.version;

import org.apache.spark.Aggregator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.Some;
import scala.math.Ordering;

/** Spark 3.5 and 4.0, which have no checksums over rows. Compiled against both; see pom.xml. */
final class Spark40 extends SparkVersion {
  @Override
  public void omitRowChecksums(ShuffleDependency<?, ?, ?> dependency) {}

  @Override
  public void restoreRowChecksums(ShuffleDependency<?, ?, ?> dependency) {}

  @Override
  public RowChecksums rowChecksums(ShuffleDependency<?, ?, ?> dependency) {
    return new NoChecksums();
  }

  @Override
  public <K, V, C> ExternalSorter<K, V, C> sorter(
      TaskContext context, Option<Aggregator<K, V, C>> aggregator, Ordering<K> ordering, Serializer serializer) {
    return new ExternalSorter<>(context, aggregator, Option.empty(), new Some<>(ordering), serializer);
  }

  private record NoChecksums() implements RowChecksums {
    @Override
    public boolean wanted() {
      return false;
    }

    @Override
    public void update(int partition, Object key, Object value) {
      throw new IllegalStateException("this Spark has no checksums over rows");
    }

    @Override
    public MapStatus mapStatus(BlockManagerId location, long[] lengths, long mapId) {
      return MapStatus$.MODULE$.apply(location, lengths, mapId);
    }
  }
}
