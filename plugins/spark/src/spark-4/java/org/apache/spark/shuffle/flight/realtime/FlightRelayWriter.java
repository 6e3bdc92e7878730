package org.apache.spark.shuffle.flight.realtime;

import java.io.IOException;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.push.PutStream;
import org.apache.spark.shuffle.flight.rows.RowPath;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/** The writer of a pipelined shuffle: rows go to the worker, which hands them on, while the task runs. */
public final class FlightRelayWriter<K, V> extends ShuffleWriter<K, V> {
  private final Connections connections;
  private final FlightConf conf;
  private final RelayHandle<K, V, ?> handle;
  private final long mapId;
  private final TaskContext context;
  private final ShuffleWriteMetricsReporter metrics;
  private final long[] lengths;

  public FlightRelayWriter(
      Connections connections, FlightConf conf, RelayHandle<K, V, ?> handle, long mapId, TaskContext context,
      ShuffleWriteMetricsReporter metrics) {
    this.connections = connections;
    this.conf = conf;
    this.handle = handle;
    this.mapId = mapId;
    this.context = context;
    this.metrics = metrics;
    this.lengths = new long[handle.dependency().partitioner().numPartitions()];
  }

  @Override
  public void write(Iterator<Product2<K, V>> records) throws IOException {
    Partitioner partitioner = handle.dependency().partitioner();
    int fields = RowPath.fields(handle.dependency().serializer());
    RelayPush push = new RelayPush(open(), connections.timer(), lengths.length, fields, conf);
    context.addTaskCompletionListener((org.apache.spark.util.TaskCompletionListener) ended -> push.close());
    long rows = 0;
    while (records.hasNext()) {
      Product2<K, V> entry = records.next();
      int partition = partitioner.getPartition(entry._1());
      UnsafeRow row = (UnsafeRow) entry._2();
      push.write(partition, row);
      lengths[partition] += row.getSizeInBytes();
      rows++;
      metrics.incRecordsWritten(1);
    }
    long start = System.nanoTime();
    push.commit(rows);
    metrics.incBytesWritten(push.bytes());
    metrics.incWriteTime(System.nanoTime() - start);
  }

  /** The map is named by its index: it must not be asked for under another name when the task is repeated. */
  private PutStream open() throws IOException {
    MapAttempt output = MapAttempt.newBuilder().setMap(context.partitionId()).setAttempt(mapId).build();
    PutCommand.Builder command =
        PutCommand.newBuilder()
            .setShuffle(handle.key())
            .setOutput(output)
            .setPartitions(lengths.length)
            .setCodec("none")
            .setRelay(true);
    WorkerAddress worker = connections.locate(handle.worker());
    return PutStream.open(
        connections.channel(worker), worker, command, conf.connectTimeout(), conf.ioTimeout(),
        context::killTaskIfInterrupted);
  }

  /** As Spark's own streaming writer: a status without sizes, because there is nothing that could be fetched. */
  @Override
  public Option<MapStatus> stop(boolean success) {
    if (!success) {
      return Option.empty();
    }
    return Option.apply(
        MapStatus$.MODULE$.apply(SparkEnv.get().blockManager().shuffleServerId(), new long[lengths.length], mapId, 0L));
  }

  @Override
  public long[] getPartitionLengths() {
    return lengths;
  }
}
