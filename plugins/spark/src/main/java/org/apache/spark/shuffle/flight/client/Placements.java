package org.apache.spark.shuffle.flight.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.spark.shuffle.flight.proto.PlaceReply;
import org.apache.spark.shuffle.flight.proto.Worker;

/**
 * The master's last answer to where map outputs go, for all outputs of an executor while it holds: they go to the good
 * candidates in turn. A worker that fails one output is left out for all; when no candidate is left the master is asked anew,
 * with those that failed to be avoided. Thread-safe.
 */
final class Placements {
  /** Workers to avoid that a request names. */
  private static final int MOST_AVOIDED = 1000;

  private static final int FIRST_TURNS = 60;

  private final LongSupplier nanos;
  private final List<String> candidates = new ArrayList<>();
  private final Map<String, Long> failed = new HashMap<>(); // and until when they are avoided
  private String host = "";
  private int inTurn;
  private int next = ThreadLocalRandom.current().nextInt(FIRST_TURNS); // executors begin with different ones
  private long until;

  /** @param nanos as {@code System.nanoTime()} */
  Placements(LongSupplier nanos) {
    this.nanos = nanos;
  }

  /**
   * The worker for the next output that is written at {@code at}; empty: ask the master.
   *
   * @param avoid workers that have just failed this output
   */
  synchronized Optional<String> choose(String at, Collection<String> avoid) {
    avoid.forEach(this::failed);
    if (!at.equals(host) || candidates.isEmpty() || nanos.getAsLong() - until >= 0) {
      return Optional.empty();
    }
    next++;
    return Optional.of(candidates.get(Math.floorMod(next, Math.max(1, Math.min(inTurn, candidates.size())))));
  }

  /** For the request: the workers that have failed this output, or another one just now. */
  synchronized Set<String> toAvoid(Collection<String> avoid) {
    long now = nanos.getAsLong();
    failed.values().removeIf(end -> now - end >= 0);
    Set<String> found = new LinkedHashSet<>(avoid);
    found.addAll(failed.keySet());
    return found.size() <= MOST_AVOIDED ? found : new LinkedHashSet<>(List.copyOf(found).subList(0, MOST_AVOIDED));
  }

  /** Takes in the answer of the master for outputs that are written at {@code at}. */
  synchronized void answered(String at, PlaceReply reply) {
    host = at;
    candidates.clear();
    reply.getWorkersList().stream().map(Worker::getId).forEach(candidates::add);
    inTurn = reply.getInTurn();
    until = nanos.getAsLong() + TimeUnit.MILLISECONDS.toNanos(reply.getGoodForMs());
  }

  /** A worker did not take an output. */
  synchronized void failed(String worker) {
    int at = candidates.indexOf(worker);
    if (at < 0) {
      return;
    }
    if (at < inTurn) {
      inTurn--;
    }
    candidates.remove(at);
    failed.put(worker, until);
  }
}
