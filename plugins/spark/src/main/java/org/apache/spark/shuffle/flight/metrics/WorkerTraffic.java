package org.apache.spark.shuffle.flight.metrics;

import java.io.Serializable;

/**
 * What tasks have moved of one shuffle to and from one worker. Local is what went through files of a worker on the executor's
 * host, wire the rest.
 *
 * @param maps map outputs that were committed there
 * @param creditWaitNanos waits of writers for the worker's leave to send
 */
public record WorkerTraffic(
    long maps, long writtenLocal, long writtenWire, long recordsWritten, long creditWaitNanos, long readLocal, long readWire)
    implements Serializable {
  public static final WorkerTraffic NONE = new WorkerTraffic(0, 0, 0, 0, 0, 0, 0);

  WorkerTraffic plus(WorkerTraffic other) {
    return new WorkerTraffic(
        maps + other.maps, writtenLocal + other.writtenLocal, writtenWire + other.writtenWire,
        recordsWritten + other.recordsWritten, creditWaitNanos + other.creditWaitNanos, readLocal + other.readLocal,
        readWire + other.readWire);
  }
}
