package org.apache.spark.shuffle.flight.local;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.shuffle.flight.proto.FileReads;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.TellReadsRequest;

/** What this process has read of files without asking, since it was taken last. Thread-safe. */
final class ReadCounts {
  private static final class Count {
    private long blocks;
    private long bytes;
  }

  private final Map<String, Map<ShuffleKey, Count>> workers = new HashMap<>();

  /**
   * Counts blocks of one shuffle in the files of a worker.
   *
   * @return whether they are the first since {@link #take}
   */
  synchronized boolean add(String worker, ShuffleKey shuffle, long blocks, long bytes) {
    boolean first = workers.isEmpty();
    Count count = workers.computeIfAbsent(worker, key -> new HashMap<>()).computeIfAbsent(shuffle, key -> new Count());
    count.blocks += blocks;
    count.bytes += bytes;
    return first;
  }

  /** A request for each worker, by its id, without the nonce. They are counted no more. */
  synchronized Map<String, TellReadsRequest.Builder> take() {
    Map<String, TellReadsRequest.Builder> all = new HashMap<>();
    workers.forEach(
        (worker, shuffles) -> {
          TellReadsRequest.Builder request = TellReadsRequest.newBuilder();
          shuffles.forEach(
              (shuffle, count) ->
                  request.addReads(
                      FileReads.newBuilder().setShuffle(shuffle).setBlocks(count.blocks).setBytes(count.bytes)));
          all.put(worker, request);
        });
    workers.clear();
    return all;
  }
}
