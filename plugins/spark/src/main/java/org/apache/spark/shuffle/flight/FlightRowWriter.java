package org.apache.spark.shuffle.flight;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.spark.Partitioner;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/**
 * The writer of SQL exchanges: rows are copied once into a buffer per partition, a full buffer is compressed and handed on
 * while the task goes on. No sort, no spill file, no stream per partition. {@link RowReader} reads it; {@link RowPath} says
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
  private final RowCodec codec;
  private final ByteBuffer header = ByteBuffer.allocate(RowReader.HEADER_BYTES);
  private final long[] lengths;

  FlightRowWriter(
      ShuffleDependency<K, V, ?> dependency, RowPath path, long mapId, DataPusher push, TaskContext context,
      ShuffleWriteMetricsReporter metrics) {
    this.partitioner = dependency.partitioner();
    this.checksums = SparkVersion.running().rowChecksums(dependency);
    this.path = path;
    this.mapId = mapId;
    this.push = push;
    this.codec = RowCodec.of(SparkEnv.get().conf());
    this.metrics = metrics;
    this.lengths = new long[partitioner.numPartitions()];
    this.buffers = new RowBuffers(context.taskMemoryManager(), lengths.length, path.bufferSize(), this::push);
    buffers.handOnAt(enough());
  }

  /** Where little repeats, more rows do not compress better, and few of them are still in the processor's cache. */
  private int enough() {
    return codec.littleRepeats() ? path.shortBuffer(lengths.length) : path.bufferSize();
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

  /** Compresses to where the block is to lie in its message, or, when there is too little room, to an array of its own. */
  private void push(int partition, byte[] rows, int length) throws IOException {
    int most = RowReader.HEADER_BYTES + codec.most(length);
    BlockBatch batch = most > 0 ? push.roomFor(partition, most) : null;
    if (batch == null) {
      pushCopy(partition, rows, length);
      return;
    }
    byte[] target = batch.space(most);
    int at = batch.size();
    int packed = codec.pack(rows, length, target, at + RowReader.HEADER_BYTES);
    RowReader.putHeader(header, packed < length ? codec.id() : RowCodec.STORED, packed, length);
    System.arraycopy(header.array(), 0, target, at, RowReader.HEADER_BYTES);
    batch.append(RowReader.HEADER_BYTES + packed);
    long start = System.nanoTime();
    push.madeBlock();
    metrics.incWriteTime(System.nanoTime() - start);
    pushed(partition, packed);
  }

  private void pushCopy(int partition, byte[] rows, int length) throws IOException {
    int packed = codec.pack(rows, length);
    boolean fewer = packed < length;
    RowReader.putHeader(header, fewer ? codec.id() : RowCodec.STORED, packed, length);
    long start = System.nanoTime();
    push.writeBlock(partition, header.array(), fewer ? codec.packed() : rows, packed);
    metrics.incWriteTime(System.nanoTime() - start);
    pushed(partition, packed);
  }

  private void pushed(int partition, int packed) {
    int size = RowReader.HEADER_BYTES + packed;
    metrics.incBytesWritten(size);
    lengths[partition] += size;
    buffers.handOnAt(enough());
  }

  @Override
  public Option<MapStatus> stop(boolean success) {
    buffers.free();
    codec.close();
    return success ? Option.apply(checksums.mapStatus(push.location(), lengths, mapId)) : Option.empty();
  }

  @Override
  public long[] getPartitionLengths() {
    return lengths;
  }
}
