package org.apache.spark.shuffle.flight.realtime;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
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

/** The writer of a pipelined shuffle: rows go to the worker of their partition, which hands them on, while the task runs. */
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
    List<RelayPush> pushes = open();
    long rows = 0;
    while (records.hasNext()) {
      Product2<K, V> entry = records.next();
      int partition = partitioner.getPartition(entry._1());
      UnsafeRow row = (UnsafeRow) entry._2();
      pushes.get(handle.share(partition)).write(partition, row);
      lengths[partition] += row.getSizeInBytes();
      rows++;
      metrics.incRecordsWritten(1);
    }
    long start = System.nanoTime();
    commit(pushes, rows);
    metrics.incBytesWritten(pushes.stream().mapToLong(RelayPush::bytes).sum());
    metrics.incWriteTime(System.nanoTime() - start);
  }

  /** A push to each worker, also without rows for it: its readers wait for the end of each map. */
  private List<RelayPush> open() throws IOException {
    int fields = RowPath.fields(handle.dependency().serializer());
    List<RelayPush> pushes = new ArrayList<>();
    for (WorkerAddress worker : handle.workers()) {
      RelayBlocks blocks = new RelayBlocks(fields, conf, SparkEnv.get().conf());
      RelayPush push = new RelayPush(open(worker), blocks, connections.timer(), lengths.length, conf);
      context.addTaskCompletionListener((org.apache.spark.util.TaskCompletionListener) ended -> push.close());
      pushes.add(push);
    }
    return pushes;
  }

  /**
   * Sends what is left, states that this was all, and returns when readers have it.
   *
   * @param written rows that were given to the pushes
   */
  private static void commit(List<RelayPush> pushes, long written) throws IOException {
    for (RelayPush push : pushes) {
      push.sendRest();
    }
    long sent = pushes.stream().mapToLong(RelayPush::rows).sum();
    if (sent != written) {
      throw new IOException(written + " rows were written, but " + sent + " were sent: please report this");
    }
    for (RelayPush push : pushes) {
      push.end();
    }
    for (RelayPush push : pushes) {
      push.awaitRead();
    }
  }

  /** The map is named by its index: it must not be asked for under another name when the task is repeated. */
  private PutStream open(WorkerAddress named) throws IOException {
    MapAttempt output = MapAttempt.newBuilder().setMap(context.partitionId()).setAttempt(mapId).build();
    PutCommand.Builder command =
        PutCommand.newBuilder()
            .setShuffle(handle.key())
            .setOutput(output)
            .setPartitions(lengths.length)
            .setCodec("none")
            .setRelay(true);
    WorkerAddress worker = connections.locate(named);
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
