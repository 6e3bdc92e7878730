package org.apache.spark.shuffle.flight.rows;

import java.lang.reflect.Field;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.internal.config.package$;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.sql.execution.UnsafeRowSerializer;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.unsafe.Platform;

/**
 * How the rows of one SQL exchange are written by {@code FlightRowWriter}.
 *
 * @param bufferSize bytes of the buffer per partition
 * @param fields of a row
 * @param dataSize the exchange's metric of that name, or null
 */
public record RowPath(int bufferSize, int fields, SQLMetric dataSize) {
  /** Larger ones gain nothing. */
  private static final int LARGEST_BUFFER = 128 << 10;

  /** Bytes of all buffers of a task together as long as they need not be smaller than {@link #SMALLEST_BUFFER} for it. */
  private static final int ENOUGH_MEMORY = 32 << 20;

  /** Smaller ones compress badly and make many blocks: Spark's serialized writer, which sorts, is better then. */
  private static final int SMALLEST_BUFFER = 16 << 10;

  /** Bytes that a core's second-level cache holds, as a rule. */
  private static final int CACHED = 2 << 20;

  private static final package$ CONFIG = package$.MODULE$;

  /**
   * Null when Spark's own writers must write this shuffle, and its own reader read it: its values are not rows, values are
   * combined before they are written, they are to be encrypted, or compressed with a codec that {@link RowCodec} has not,
   * or there are too many partitions for buffers. Asked once, on the driver: the shuffle's handle carries it
   * to the tasks.
   *
   * @param memory bytes for the buffers of one task
   */
  public static RowPath of(ShuffleDependency<?, ?, ?> dependency, SparkConf conf, int memory) {
    int partitions = dependency.partitioner().numPartitions();
    return dependency.mapSideCombine() ? null : of(dependency.serializer(), partitions, conf, memory);
  }

  static RowPath of(Serializer serializer, int partitions, SparkConf conf, int memory) {
    int size = Math.min(LARGEST_BUFFER, Math.max(SMALLEST_BUFFER, share(partitions, memory)));
    boolean encrypted = (Boolean) conf.get(CONFIG.IO_ENCRYPTION_ENABLED());
    boolean possible =
        serializer instanceof UnsafeRowSerializer
            && (long) size * partitions <= memory
            && !encrypted
            && RowCodec.of(conf) != null
            && Platform.unaligned(); // rows lie 4 bytes behind each other's ends
    return possible ? of(serializer, size) : null;
  }

  /**
   * Bytes per partition of the memory that is well spent on buffers.
   *
   * @param memory the most that a task may use
   */
  public static int share(int partitions, int memory) {
    return Math.min(ENOUGH_MEMORY, memory) / Math.max(1, partitions);
  }

  /** For tasks, with the buffer that the driver has decided on. */
  public static RowPath of(Serializer serializer, int bufferSize) {
    return new RowPath(bufferSize, fields(serializer), (SQLMetric) field((UnsafeRowSerializer) serializer, "dataSize"));
  }

  /** The fields of the rows that {@code serializer} is for. */
  public static int fields(Serializer serializer) {
    return (Integer) field((UnsafeRowSerializer) serializer, "numFields");
  }

  /** Of a serializer that can be asked for neither: it counts as it writes, and knows the number as it reads. */
  private static Object field(UnsafeRowSerializer serializer, String name) {
    try {
      Field field = UnsafeRowSerializer.class.getDeclaredField(name);
      field.setAccessible(true);
      return field.get(serializer);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this Spark's UnsafeRowSerializer has no field " + name, e);
    }
  }

  /** Bytes at which a buffer is handed on where longer ones gain little: those of all partitions then stay in a core's cache. */
  public int shortBuffer(int partitions) {
    return Math.min(bufferSize, Math.max(SMALLEST_BUFFER, share(partitions, CACHED)));
  }

  public void addDataSize(long bytes) {
    if (dataSize != null) {
      dataSize.add(bytes);
    }
  }
}
