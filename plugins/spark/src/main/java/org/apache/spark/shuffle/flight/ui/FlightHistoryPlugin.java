package org.apache.spark.shuffle.flight.ui;

import java.util.NoSuchElementException;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.status.AppHistoryServerPlugin;
import org.apache.spark.status.ElementTrackingStore;
import org.apache.spark.ui.SparkUI;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;

/** The tab in Spark's history server, which finds this class by {@code META-INF/services}. */
public final class FlightHistoryPlugin implements AppHistoryServerPlugin {
  private static final int LAST = Integer.MAX_VALUE;

  @Override
  public Seq<SparkListener> createListeners(SparkConf conf, ElementTrackingStore store) {
    return List$.MODULE$.<SparkListener>empty().$colon$colon(new FlightUiListener(store));
  }

  @Override
  public void setupUI(SparkUI ui) {
    try {
      ui.store().store().read(FlightApplicationEvent.class, FlightApplicationEvent.KEY);
    } catch (NoSuchElementException e) {
      return; // the application had no shuffle of ours
    } catch (Exception e) {
      throw new IllegalStateException("the store of the page Flight Shuffle cannot be read", e);
    }
    FlightTab.attach(ui);
  }

  @Override
  public int displayOrder() {
    return LAST;
  }
}
