package org.apache.spark.shuffle.flight.ui;

import javax.servlet.http.HttpServletRequest;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.WebUIPage;
import org.apache.spark.util.kvstore.KVStore;
import scala.collection.immutable.Seq;
import scala.xml.Node;

/** The one page of the tab: the only class that names a servlet's, which are not the same in all versions of Spark. */
final class FlightPage extends WebUIPage {
  private final SparkUITab tab;
  private final KVStore store;

  FlightPage(SparkUITab tab, KVStore store) {
    super("");
    this.tab = tab;
    this.store = store;
  }

  @Override
  public Seq<Node> render(HttpServletRequest request) {
    return SparkPage.around(HttpServletRequest.class, request, tab, PageContent.of(store));
  }
}
