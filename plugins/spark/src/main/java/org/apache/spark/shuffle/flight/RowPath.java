package org.apache.spark.shuffle.flight;

import java.lang.reflect.Field;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.internal.config.package$;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.sql.execution.UnsafeRowSerializer;
import org.apache.spark.sql.execution.metric.SQLMetric;

/**
 * How the rows of one SQL exchange are written by {@link FlightRowWriter}.
 *
 * @param bufferSize bytes of the buffer per partition
 * @param dataSize the exchange's metric of that name, or null
 */
record RowPath(int bufferSize, SQLMetric dataSize) {
  /** Larger ones leave the processor's cache and gain nothing. */
  private static final int LARGEST_BUFFER = 128 << 10;

  /** Smaller ones compress badly and make many blocks: Spark's serialized writer, which sorts, is better then. */
  private static final int SMALLEST_BUFFER = 16 << 10;

  private static final package$ CONFIG = package$.MODULE$;

  /**
   * Null when Spark's own writers must write this shuffle: its values are not rows, values are combined before they are
   * written, one partition's streams cannot stand one behind the other, or there are too many partitions for buffers.
   *
   * @param memory bytes for the buffers of one task
   */
  static RowPath of(ShuffleDependency<?, ?, ?> dependency, SparkConf conf, int memory) {
    int partitions = dependency.partitioner().numPartitions();
    return dependency.mapSideCombine() ? null : of(dependency.serializer(), partitions, conf, memory);
  }

  static RowPath of(Serializer serializer, int partitions, SparkConf conf, int memory) {
    int size = Math.min(LARGEST_BUFFER, memory / Math.max(1, partitions));
    if (!(serializer instanceof UnsafeRowSerializer rows) || size < SMALLEST_BUFFER || !concatenable(conf)) {
      return null;
    }
    return new RowPath(size, dataSize(rows));
  }

  private static boolean concatenable(SparkConf conf) {
    if ((Boolean) conf.get(CONFIG.IO_ENCRYPTION_ENABLED())) {
      return false;
    }
    if (!(Boolean) conf.get(CONFIG.SHUFFLE_COMPRESS())) {
      return true;
    }
    CompressionCodec codec = CompressionCodec$.MODULE$.createCodec(conf);
    return CompressionCodec$.MODULE$.supportsConcatenationOfSerializedStreams(codec);
  }

  /** The serializer adds to it as it writes; nothing else can be asked for it. */
  private static SQLMetric dataSize(UnsafeRowSerializer serializer) {
    try {
      Field field = UnsafeRowSerializer.class.getDeclaredField("dataSize");
      field.setAccessible(true);
      return (SQLMetric) field.get(serializer);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this Spark's UnsafeRowSerializer has no field dataSize", e);
    }
  }

  void addDataSize(long bytes) {
    if (dataSize != null) {
      dataSize.add(bytes);
    }
  }
}
