package org.apache.spark.shuffle.flight.ui;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.shuffle.flight.metrics.Skew;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.shuffle.flight.metrics.WorkerTraffic;
import org.apache.spark.util.kvstore.KVStore;
import org.apache.spark.util.kvstore.KVStoreIterator;

/** What the page shows, as HTML: the application, its shuffles, and each of them by worker. */
final class PageContent {
  /** Lines of the table by worker, of the newest shuffles. */
  static final int MOST_LINES = 2000;

  private PageContent() {}

  static String of(KVStore store) {
    List<FlightApplicationEvent> applications = all(store, FlightApplicationEvent.class);
    List<FlightShuffleEvent> shuffles = all(store, FlightShuffleEvent.class);
    List<FlightShuffleEvent> ours = shuffles.stream().filter(each -> each.fallback().isEmpty()).toList();
    StringBuilder html = new StringBuilder();
    applications.forEach(each -> application(html, each));
    shuffles(html, ours);
    workers(html, ours);
    fallbacks(html, shuffles.stream().filter(each -> !each.fallback().isEmpty()).toList());
    return html.toString();
  }

  /** The newest first. */
  private static <T> List<T> all(KVStore store, Class<T> type) {
    try (KVStoreIterator<T> each = store.view(type).reverse().closeableIterator()) {
      List<T> found = new ArrayList<>();
      each.forEachRemaining(found::add);
      return found;
    } catch (Exception e) {
      throw new IllegalStateException("the store of the page Flight Shuffle cannot be read", e);
    }
  }

  private static void application(StringBuilder html, FlightApplicationEvent application) {
    html.append("<ul class=\"list-unstyled\">");
    item(html, "Server", application.server());
    item(html, "Application", application.app());
    item(html, "Fallback", application.fallback());
    item(html, "Plugin", application.client());
    html.append("</ul>");
  }

  private static void item(StringBuilder html, String name, String value) {
    html.append("<li><strong>").append(name).append(":</strong> ").append(Cells.escape(value)).append("</li>");
  }

  private static void shuffles(StringBuilder html, List<FlightShuffleEvent> shuffles) {
    Cells table =
        new Cells(
            html, "Shuffles", "shuffles", "Shuffle", "Maps", "Partitions", "Written", "Records written", "Read",
            "Records read", "Wait for credit", "Wait for blocks", "Lost maps", "Maps that ran again", "Median partition",
            "99th percentile", "Largest partition", "Largest ÷ median");
    for (FlightShuffleEvent each : shuffles) {
      Traffic traffic = each.traffic();
      table.line()
          .number(each.shuffle()).number(each.maps()).number(each.partitions())
          .bytes(traffic.bytesWritten()).number(traffic.sum(WorkerTraffic::recordsWritten))
          .bytes(traffic.bytesRead()).number(traffic.recordsRead())
          .nanos(traffic.sum(WorkerTraffic::creditWaitNanos)).nanos(traffic.fetchWaitMillis() * 1_000_000)
          .number(each.lost()).number(each.rerun());
      skew(table, each.skew());
    }
    table.end();
  }

  private static void skew(Cells table, Skew skew) {
    if (skew == null) {
      table.text("").text("").text("").text("");
      return;
    }
    String ratio = skew.median() == 0 ? "" : String.format(java.util.Locale.ROOT, "%.1f", (double) skew.largest() / skew.median());
    table.bytes(skew.median()).bytes(skew.percentile99())
        .bytes(skew.largest(), "partition " + skew.largestPartition()).text(ratio);
  }

  private static void workers(StringBuilder html, List<FlightShuffleEvent> shuffles) {
    Cells table =
        new Cells(
            html, "Shuffles by worker", "workers", "Shuffle", "Worker", "Maps", "Written locally", "Written by wire",
            "Records written", "Wait for credit", "Read locally", "Read by wire");
    int lines = 0;
    for (FlightShuffleEvent shuffle : shuffles) {
      for (Map.Entry<String, WorkerTraffic> each : shuffle.traffic().workers().entrySet()) {
        if (lines++ < MOST_LINES) {
          WorkerTraffic traffic = each.getValue();
          table.line()
              .number(shuffle.shuffle()).text(each.getKey().isEmpty() ? "(none: no bytes)" : each.getKey())
              .number(traffic.maps()).bytes(traffic.writtenLocal()).bytes(traffic.writtenWire())
              .number(traffic.recordsWritten()).nanos(traffic.creditWaitNanos())
              .bytes(traffic.readLocal()).bytes(traffic.readWire());
        }
      }
    }
    table.end();
    if (lines > MOST_LINES) {
      html.append("<p>The first ").append(MOST_LINES).append(" of ").append(lines).append(" lines.</p>");
    }
  }

  private static void fallbacks(StringBuilder html, List<FlightShuffleEvent> shuffles) {
    Cells table = new Cells(html, "In Spark's sort shuffle", "fallbacks", "Shuffle", "Maps", "Partitions", "Reason");
    for (FlightShuffleEvent each : shuffles) {
      table.line().number(each.shuffle()).number(each.maps()).number(each.partitions()).text(each.fallback());
    }
    table.end();
  }
}
