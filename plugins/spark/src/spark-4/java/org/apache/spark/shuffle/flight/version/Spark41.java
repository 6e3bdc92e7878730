package org.apache.spark.shuffle.flight.version;

import java.util.Arrays;
import org.apache.spark.Aggregator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.checksum.RowBasedChecksum;
import org.apache.spark.shuffle.checksum.RowBasedChecksum$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRowChecksum;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.Some;
import scala.math.Ordering;

/** Spark 4.1 and later. */
final class Spark41 extends SparkVersion {
  @Override
  public void omitRowChecksums(ShuffleDependency<?, ?, ?> dependency) {
    omit(dependency.rowBasedChecksums());
  }

  @Override
  public void restoreRowChecksums(ShuffleDependency<?, ?, ?> dependency) {
    restore(dependency.rowBasedChecksums());
  }

  @Override
  public RowChecksums rowChecksums(ShuffleDependency<?, ?, ?> dependency) {
    return new Checksums(whole(dependency.rowBasedChecksums()));
  }

  /** Puts nulls where Spark's own checksums of rows are; leaves others alone. */
  static void omit(RowBasedChecksum[] checksums) {
    if (Arrays.stream(checksums).allMatch(UnsafeRowChecksum.class::isInstance)) {
      Arrays.fill(checksums, null);
    }
  }

  /** Puts new ones in their place if {@link #omit} has been at {@code checksums}. */
  static void restore(RowBasedChecksum[] checksums) {
    RowBasedChecksum[] whole = whole(checksums);
    System.arraycopy(whole, 0, checksums, 0, whole.length);
  }

  /** New ones if {@link #omit} has been at {@code checksums}, else those. */
  static RowBasedChecksum[] whole(RowBasedChecksum[] checksums) {
    return checksums.length > 0 && checksums[0] == null
        ? UnsafeRowChecksum.createUnsafeRowChecksums(checksums.length)
        : checksums;
  }

  @Override
  public <K, V, C> ExternalSorter<K, V, C> sorter(
      TaskContext context, Option<Aggregator<K, V, C>> aggregator, Ordering<K> ordering, Serializer serializer) {
    return new ExternalSorter<>(
        context, aggregator, Option.empty(), new Some<>(ordering), serializer, new RowBasedChecksum[0]);
  }

  /** @param partitions one per partition, or none at all */
  private record Checksums(RowBasedChecksum[] partitions) implements RowChecksums {
    @Override
    public boolean wanted() {
      return partitions.length > 0;
    }

    @Override
    public void update(int partition, Object key, Object value) {
      partitions[partition].update(key, value);
    }

    @Override
    public MapStatus mapStatus(BlockManagerId location, long[] lengths, long mapId) {
      long checksum = RowBasedChecksum$.MODULE$.getAggregatedChecksumValue(partitions);
      return MapStatus$.MODULE$.apply(location, lengths, mapId, checksum);
    }
  }
}
