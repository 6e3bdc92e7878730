package org.apache.spark.shuffle.flight.metrics;

import org.apache.spark.util.AccumulatorV2;

/** What tasks move of one shuffle, summed up on the driver. Travels with the shuffle's handle, and back with each task's result. */
public final class TrafficCounter extends AccumulatorV2<Traffic, Traffic> {
  private static final long serialVersionUID = 1L;

  private volatile Traffic sum = Traffic.NONE; // heartbeats read it beside the task

  @Override
  public boolean isZero() {
    return sum.empty();
  }

  @Override
  public TrafficCounter copy() {
    TrafficCounter copy = new TrafficCounter();
    copy.sum = sum;
    return copy;
  }

  @Override
  public void reset() {
    sum = Traffic.NONE;
  }

  @Override
  public synchronized void add(Traffic more) {
    sum = isZero() ? more : sum.plus(more);
  }

  @Override
  public void merge(AccumulatorV2<Traffic, Traffic> other) {
    if (!other.isZero()) {
      add(other.value());
    }
  }

  @Override
  public Traffic value() {
    return sum;
  }
}
