package org.apache.spark.shuffle.flight.ui;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.status.ElementTrackingStore;
import org.apache.spark.util.kvstore.KVStoreIterator;
import scala.runtime.BoxedUnit;

/** Keeps the newest figures of an application's shuffles for its page, where Spark keeps those of its own pages. */
public final class FlightUiListener extends SparkListener {
  /** As many as Spark keeps stages by default. */
  static final int SHUFFLES = 1000;

  private final ElementTrackingStore store;

  public FlightUiListener(ElementTrackingStore store) {
    this.store = store;
    store.addTrigger(
        FlightShuffleEvent.class, SHUFFLES,
        count -> {
          forgetOldest((Long) count - SHUFFLES);
          return BoxedUnit.UNIT;
        });
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof FlightShuffleEvent || event instanceof FlightApplicationEvent) {
      store.write(event, true);
    }
  }

  private void forgetOldest(long shuffles) {
    try (KVStoreIterator<FlightShuffleEvent> oldest = store.view(FlightShuffleEvent.class).closeableIterator()) {
      for (FlightShuffleEvent each : oldest.next((int) Math.max(0, shuffles))) {
        store.delete(FlightShuffleEvent.class, each.shuffle());
      }
    } catch (Exception e) {
      throw new IllegalStateException("the store of the page Flight Shuffle cannot be read", e);
    }
  }
}
