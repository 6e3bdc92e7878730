package org.apache.spark.shuffle.flight.local;

import java.nio.file.Path;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;

/**
 * The files of map outputs on this host that the process has been told of, with the index of all of their blocks: what
 * it wrote itself, or has read some of. So not every reduce task has to ask for the place of each of its blocks.
 *
 * <p>Nothing here is a promise: outputs are removed, lost, and moved. Who reads a file verifies each block and that the
 * path still names the file, and on any failure has its place forgotten and asks the worker. Thread-safe; of what does
 * not fit that which was not wanted for longest is dropped.
 */
public final class FileIndexCache {
  /** Bytes that an entry takes beside its index, about. */
  private static final int ENTRY_BYTES = 512;

  /** The file of one output, at the worker of this id. */
  public record Known(String worker, Path path, FileIndex index) {
    private int bytes() {
      return ENTRY_BYTES + index.bytes();
    }
  }

  private record Key(long shuffle, long generation, long map) {
    static Key of(ShuffleKey shuffle, long map) {
      return new Key(shuffle.getShuffle(), shuffle.getGeneration(), map);
    }
  }

  private final long most;
  private final Map<Key, Known> files = new LinkedHashMap<>(16, 0.75f, true);
  private long bytes;

  /** @param most bytes that all of it may take */
  FileIndexCache(long most) {
    this.most = most;
  }

  public synchronized void add(ShuffleKey shuffle, long map, Known known) {
    Known before = files.put(Key.of(shuffle, map), known);
    bytes += known.bytes() - (before == null ? 0 : before.bytes());
    Iterator<Known> oldest = files.values().iterator();
    while (bytes > most && oldest.hasNext()) {
      bytes -= oldest.next().bytes();
      oldest.remove();
    }
  }

  /** Null when it is not known. */
  public synchronized Known find(ShuffleKey shuffle, long map, String worker) {
    Known known = files.get(Key.of(shuffle, map));
    return known == null || !known.worker().equals(worker) ? null : known;
  }

  /** {@code known} turned out not to be so. */
  synchronized void forget(ShuffleKey shuffle, long map, Known known) {
    if (files.remove(Key.of(shuffle, map), known)) {
      bytes -= known.bytes();
    }
  }

  /** A shuffle is over, in all of its generations. */
  synchronized void drop(long shuffle) {
    files.entrySet().removeIf(
        entry -> {
          boolean its = entry.getKey().shuffle() == shuffle;
          bytes -= its ? entry.getValue().bytes() : 0;
          return its;
        });
  }

  synchronized int size() {
    return files.size();
  }
}
