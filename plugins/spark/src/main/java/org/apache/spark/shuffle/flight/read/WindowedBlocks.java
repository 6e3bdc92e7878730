package org.apache.spark.shuffle.flight.read;

import java.io.InputStream;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockFetcherIterator;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The blocks of a reader as streams, window by window, each fetched by a {@code ShuffleBlockFetcherIterator} of its own. The
 * window behind the current one is fetched meanwhile. Used by the task's thread.
 */
public final class WindowedBlocks extends AbstractIterator<Tuple2<BlockId, InputStream>> {
  /** A window that is being fetched. */
  public record Window(FlightBlockStoreClient client, ShuffleBlockFetcherIterator fetched, Iterator<Tuple2<BlockId, InputStream>> streams) {}

  private final Supplier<Optional<Window>> opener;
  private final boolean ahead;
  private final Runnable end;
  private Window current;
  private Window next;
  private boolean ended;

  /**
   * @param opener begins to fetch the next window; empty when there is none
   * @param ahead whether the next window may be fetched before the current one is read
   * @param end runs when everything was read
   */
  public WindowedBlocks(Supplier<Optional<Window>> opener, boolean ahead, Runnable end) {
    this.opener = opener;
    this.ahead = ahead;
    this.end = end;
  }

  @Override
  public boolean hasNext() {
    while (!ended && (current == null || !current.streams().hasNext())) {
      current = next != null ? next : opener.get().orElse(null);
      next = current != null && ahead ? opener.get().orElse(null) : null;
      if (current == null) {
        ended = true;
        end.run();
      }
    }
    return !ended;
  }

  @Override
  public Tuple2<BlockId, InputStream> next() {
    if (!hasNext()) {
      throw new NoSuchElementException("no more blocks");
    }
    return current.streams().next();
  }

  /** What fetches the block that was given last. */
  public ShuffleBlockFetcherIterator fetched() {
    return current.fetched();
  }

  /** Frees what waits for its turn. */
  void close() {
    if (current != null) {
      current.client().close();
    }
    if (next != null) {
      next.client().close();
    }
  }
}
