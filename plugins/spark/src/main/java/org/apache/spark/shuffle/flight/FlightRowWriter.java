package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.Partitioner;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.flight.blocks.MapLocation;
import org.apache.spark.shuffle.flight.push.DataPusher;
import org.apache.spark.shuffle.flight.rows.ColumnPacker;
import org.apache.spark.shuffle.flight.rows.RowBlockWriter;
import org.apache.spark.shuffle.flight.rows.RowBuffers;
import org.apache.spark.shuffle.flight.rows.RowCodec;
import org.apache.spark.shuffle.flight.rows.RowPath;
import org.apache.spark.shuffle.flight.rows.RowReader;
import org.apache.spark.shuffle.flight.version.SparkVersion;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.BlockManagerId;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/**
 * The writer of SQL exchanges: rows are copied once into a buffer per partition, a full buffer is packed, compressed and
 * handed on while the task goes on. No sort, no spill file, no stream per partition. {@link RowReader} reads it; {@link RowPath} says
 * which shuffles come here.
 */
final class FlightRowWriter<K, V> extends ShuffleWriter<K, V> {
  private final Partitioner partitioner;
  private final SparkVersion.RowChecksums checksums;
  private final RowPath path;
  private final long mapId;
  private final DataPusher push;
  private final ShuffleWriteMetricsReporter metrics;
  private final RowBuffers buffers;
  private final RowBlockWriter blocks;
  private final long[] lengths;
  private long written;

  FlightRowWriter(
      ShuffleDependency<K, V, ?> dependency, RowPath path, boolean pack, long mapId, DataPusher push, TaskContext context,
      ShuffleWriteMetricsReporter metrics) {
    this.partitioner = dependency.partitioner();
    this.checksums = SparkVersion.running().rowChecksums(dependency);
    this.path = path;
    this.mapId = mapId;
    this.push = push;
    this.metrics = metrics;
    this.lengths = new long[partitioner.numPartitions()];
    this.buffers = new RowBuffers(context.taskMemoryManager(), lengths.length, path.bufferSize(), this::push);
    this.blocks = blocks(pack);
    buffers.handOnAt(enough());
  }

  /** Rows are packed when they are to be and the task's memory has room for it. */
  private RowBlockWriter blocks(boolean pack) {
    SparkConf conf = SparkEnv.get().conf();
    int words = ColumnPacker.words(path.fields());
    ColumnPacker packer =
        pack && buffers.reserve(ColumnPacker.memory(path.bufferSize(), words)) ? new ColumnPacker(words) : null;
    return new RowBlockWriter(RowCodec.of(conf), RowCodec.of(conf), packer);
  }

  /** Where little repeats, more rows do not compress better, and few of them are still in the processor's cache. */
  private int enough() {
    return blocks.littleRepeats() ? path.shortBuffer(lengths.length) : path.bufferSize();
  }

  @Override
  public void write(Iterator<Product2<K, V>> records) throws IOException {
    boolean checksummed = checksums.wanted();
    long rows = 0;
    long bytes = 0;
    while (records.hasNext()) {
      Product2<K, V> entry = records.next();
      int partition = partitioner.getPartition(entry._1());
      UnsafeRow row = (UnsafeRow) entry._2();
      buffers.append(partition, row);
      if (checksummed) {
        checksums.update(partition, entry._1(), row);
      }
      rows++;
      bytes += row.getSizeInBytes();
    }
    buffers.handOnAll();
    metrics.incRecordsWritten(rows);
    path.addDataSize(bytes);
    long start = System.nanoTime();
    push.commit();
    metrics.incWriteTime(System.nanoTime() - start);
  }

  /** Makes the block where it is to lie in its message, or, when there is too little room, in an array of its own. */
  private void push(int partition, byte[] rows, int length, int count) throws IOException {
    blocks.start(rows, length);
    int most = blocks.most();
    BlockBatch batch = push.roomFor(partition, most);
    if (batch != null) {
      byte[] target = batch.space(most);
      batch.append(blocks.make(target, batch.size()));
    } else {
      blocks.make();
    }
    long start = System.nanoTime();
    if (batch != null) {
      push.madeBlock(count);
    } else {
      push.writeBlock(partition, count, blocks.header(), blocks.headerLength(), blocks.bytes(), blocks.size());
    }
    metrics.incWriteTime(System.nanoTime() - start);
    int size = blocks.headerLength() + blocks.size();
    metrics.incBytesWritten(size);
    written += size;
    lengths[partition] += blocks.lengthInSpark(lengths[partition] == 0);
    buffers.handOnAt(enough());
  }

  @Override
  public Option<MapStatus> stop(boolean success) {
    buffers.close();
    blocks.close();
    return success ? Option.apply(checksums.mapStatus(location(), lengths, mapId)) : Option.empty();
  }

  /** With how much of {@link #lengths} there is to fetch. */
  private BlockManagerId location() {
    long unpacked = Arrays.stream(lengths).sum();
    return MapLocation.withShare(push.location(), written, unpacked);
  }

  /** What Spark's own writers would have written, or about that: Spark plans for such sizes. */
  @Override
  public long[] getPartitionLengths() {
    return lengths;
  }
}
