package org.apache.spark.shuffle.flight.realtime;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.RelayReader;
import org.apache.spark.shuffle.flight.rows.RowBlockReader;
import org.apache.spark.shuffle.flight.rows.RowFormat;
import org.apache.spark.shuffle.flight.rows.RowHeader;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** The reader of a pipelined shuffle: the rows of one partition as they come, until every map has ended. */
public final class FlightRelayReader<K, C> implements ShuffleReader<K, C> {
  private final Connections connections;
  private final FlightConf conf;
  private final RelayHandle<K, ?, C> handle;
  private final int partition;
  private final TaskContext context;
  private final ShuffleReadMetricsReporter metrics;

  public FlightRelayReader(
      Connections connections, FlightConf conf, RelayHandle<K, ?, C> handle, int partition, TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    this.connections = connections;
    this.conf = conf;
    this.handle = handle;
    this.partition = partition;
    this.context = context;
    this.metrics = metrics;
  }

  @Override
  public Iterator<Product2<K, C>> read() {
    GetTicket ticket =
        GetTicket.newBuilder()
            .setShuffle(handle.key())
            .setFirstPartition(partition)
            .setEndPartition(partition + 1)
            .setRelay(RelayReader.newBuilder().setAttempt(context.taskAttemptId()))
            .build();
    WorkerAddress worker = connections.locate(handle.workers().get(handle.share(partition)));
    RelayPull pull =
        RelayPull.open(
            connections.channel(worker), worker.toString(), ticket, handle.maps(), conf.ioTimeout(),
            context::killTaskIfInterrupted);
    context.addTaskCompletionListener(
        (org.apache.spark.util.TaskCompletionListener)
            ended -> {
              pull.close();
              context.taskMetrics().mergeShuffleReadMetrics(); // else only what the last heartbeat of the executor had
            });
    return new Rows<>(pull, handle.dependency().serializer().newInstance(), metrics);
  }

  /** Block by block through Spark's own deserializer, which gives each block a row object of its own. */
  private static final class Rows<K, C> extends AbstractIterator<Product2<K, C>> {
    private final RelayPull pull;
    private final SerializerInstance serializer;
    private final ShuffleReadMetricsReporter metrics;
    private final RowBlockReader packed = new RowBlockReader();
    private Iterator<Tuple2<Object, Object>> rows;
    private boolean ended;

    Rows(RelayPull pull, SerializerInstance serializer, ShuffleReadMetricsReporter metrics) {
      this.pull = pull;
      this.serializer = serializer;
      this.metrics = metrics;
    }

    @Override
    public boolean hasNext() {
      while (!ended && (rows == null || !rows.hasNext())) {
        nextBlock();
      }
      return !ended;
    }

    private void nextBlock() {
      long start = System.nanoTime();
      try {
        ended = !pull.next();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      metrics.incFetchWaitTime((System.nanoTime() - start) / 1_000_000);
      if (!ended) {
        metrics.incRemoteBlocksFetched(1);
        metrics.incRemoteBytesRead(pull.length());
        rows = serializer.deserializeStream(unpacked()).asKeyValueIterator();
      }
    }

    /** The rows of the block that came, one behind the other. */
    private InputStream unpacked() {
      ByteArrayInputStream block = new ByteArrayInputStream(pull.body(), pull.offset(), pull.length());
      if (pull.length() < RowHeader.BYTES || !RowHeader.isMark(RowFormat.first(pull.body(), pull.offset()))) {
        return block;
      }
      try {
        packed.next(block);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      return new ByteArrayInputStream(packed.rows(), 0, packed.length());
    }

    @Override
    @SuppressWarnings("unchecked")
    public Product2<K, C> next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      metrics.incRecordsRead(1);
      return (Product2<K, C>) (Product2<?, ?>) rows.next();
    }
  }
}
