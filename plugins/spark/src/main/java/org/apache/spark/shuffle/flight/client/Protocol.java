package org.apache.spark.shuffle.flight.client;

import org.apache.spark.shuffle.flight.proto.ShuffleKey;

/** The versions of the protocol that this side speaks (docs/protocol.md, Versions). */
public final class Protocol {
  public static final int NEWEST = 2;
  public static final int OLDEST = 1;

  private Protocol() {}

  /** The version of requests about {@code shuffle}: a server of version 1 gives shuffles no generation. */
  public static int of(ShuffleKey shuffle) {
    return shuffle.getGeneration() == 0 ? OLDEST : NEWEST;
  }
}
