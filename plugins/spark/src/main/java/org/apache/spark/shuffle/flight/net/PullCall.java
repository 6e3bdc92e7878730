package org.apache.spark.shuffle.flight.net;

import org.apache.spark.shuffle.flight.proto.GetTicket;

/** A call by which blocks are pulled from a worker. */
interface PullCall {
  /** Who hears how it went. */
  interface Listener {
    /** All blocks are settled. */
    void pulled();

    /** Those blocks are not settled that the assembler has not given out. */
    void failed(FlightException failure);
  }

  /** Called once; does not block. */
  void start(GetTicket ticket);

  /** Ends the call; the listener still hears of it. */
  void cancel(String why);
}
