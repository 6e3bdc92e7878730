package org.apache.spark.shuffle.flight.client;

import java.io.Serializable;
import org.apache.spark.shuffle.flight.proto.Worker;

/** A worker and where its Flight endpoint is. The id stays the same when the worker restarts, the address may change. */
public record WorkerAddress(String id, String host, int port) implements Serializable {
  public static WorkerAddress of(Worker worker) {
    return new WorkerAddress(worker.getId(), worker.getHost(), worker.getPort());
  }

  /** Its Flight endpoint. */
  HostPort at() {
    return new HostPort(host, port);
  }

  @Override
  public String toString() {
    return "worker " + id + " at " + at();
  }
}
