package org.apache.spark.shuffle.flight;

import java.io.IOException;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.flight.push.DataPusher;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/** One of Spark's own writers, whose output a {@link DataPusher} takes; the {@code MapStatus} names the worker. */
final class FlightShuffleWriter<K, V> extends ShuffleWriter<K, V> {
  private final ShuffleWriter<K, V> spark;
  private final DataPusher push;

  FlightShuffleWriter(ShuffleWriter<K, V> spark, DataPusher push) {
    this.spark = spark;
    this.push = push;
  }

  @Override
  public void write(Iterator<Product2<K, V>> records) throws IOException {
    spark.write(records);
  }

  @Override
  public Option<MapStatus> stop(boolean success) {
    Option<MapStatus> status = spark.stop(success);
    if (status.isDefined()) {
      status.get().updateLocation(push.location());
    }
    return status;
  }

  @Override
  public long[] getPartitionLengths() {
    return spark.getPartitionLengths();
  }
}
