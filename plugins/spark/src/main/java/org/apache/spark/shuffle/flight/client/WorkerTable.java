package org.apache.spark.shuffle.flight.client;

import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.spark.shuffle.flight.proto.Worker;
import org.apache.spark.shuffle.flight.proto.WorkerChanges;
import org.apache.spark.shuffle.flight.proto.WorkersKnown;

/** The workers that a process knows, kept up to date by what control replies say of changes. Thread-safe. */
final class WorkerTable {
  private final ConcurrentMap<String, Worker> workers = new ConcurrentHashMap<>();
  private WorkersKnown known = WorkersKnown.getDefaultInstance();

  /** For a request: the state of the list that this process has. */
  synchronized WorkersKnown known() {
    return known;
  }

  /** What has changed since the state that was named in a request. */
  synchronized void learn(WorkerChanges changes) {
    if (changes.getEpoch() == known.getEpoch() && changes.getVersion() < known.getVersion()) {
      return; // a later answer came first
    }
    if (changes.getAll()) {
      retain(changes.getWorkersList());
    }
    workers.keySet().removeAll(Set.copyOf(changes.getGoneList()));
    add(changes.getWorkersList());
    known = WorkersKnown.newBuilder().setEpoch(changes.getEpoch()).setVersion(changes.getVersion()).build();
  }

  /** All there are, as a server of an earlier release lists them. */
  synchronized void replace(List<Worker> all) {
    add(all);
    retain(all);
  }

  private void retain(List<Worker> all) {
    workers.keySet().retainAll(Set.copyOf(all.stream().map(Worker::getId).distinct().toList()));
  }

  /** Some workers that a reply names. */
  synchronized void add(Collection<Worker> some) {
    some.forEach(worker -> workers.put(worker.getId(), worker));
  }

  Optional<WorkerAddress> find(String worker) {
    return Optional.ofNullable(workers.get(worker)).map(WorkerAddress::of);
  }

  /** All of them. */
  List<Worker> all() {
    return List.copyOf(workers.values());
  }

  Set<String> ids() {
    return Set.copyOf(workers.keySet());
  }
}
