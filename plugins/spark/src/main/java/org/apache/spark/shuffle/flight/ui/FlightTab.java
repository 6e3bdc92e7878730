package org.apache.spark.shuffle.flight.ui;

import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;

/** The tab <em>Flight Shuffle</em> of Spark's pages about an application. */
public final class FlightTab extends SparkUITab {
  static final String TITLE = "Flight Shuffle";

  private FlightTab(SparkUI ui) {
    super(ui, "flight-shuffle");
    attachPage(new FlightPage(this, ui.store().store()));
  }

  public static void attach(SparkUI ui) {
    ui.attachTab(new FlightTab(ui));
  }

  @Override
  public String name() {
    return TITLE;
  }
}
