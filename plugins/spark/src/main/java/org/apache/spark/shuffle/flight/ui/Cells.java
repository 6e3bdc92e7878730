package org.apache.spark.shuffle.flight.ui;

import java.util.Locale;

/** A table of HTML, cell by cell. A cell's exact figure is its {@code sorttable_customkey}, by which Spark's script sorts. */
final class Cells {
  private static final String[] UNITS = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  private static final int KIBI = 1024;

  private final StringBuilder html;
  private boolean open;

  Cells(StringBuilder html, String title, String id, String... heads) {
    this.html = html;
    html.append("<h4>").append(escape(title)).append("</h4><table id=\"flight-").append(id)
        .append("\" class=\"table table-bordered table-sm table-striped sortable\"><thead><tr>");
    for (String head : heads) {
      html.append("<th>").append(escape(head)).append("</th>");
    }
    html.append("</tr></thead><tbody>");
  }

  Cells line() {
    html.append(open ? "</tr><tr>" : "<tr>");
    open = true;
    return this;
  }

  void end() {
    html.append(open ? "</tr>" : "").append("</tbody></table>");
  }

  Cells text(String text) {
    html.append("<td>").append(escape(text)).append("</td>");
    return this;
  }

  Cells number(long number) {
    return figure(number, Long.toString(number));
  }

  Cells nanos(long nanos) {
    long millis = nanos / 1_000_000;
    return figure(nanos, millis < 1000 ? millis + " ms" : String.format(Locale.ROOT, "%.1f s", millis / 1000.0));
  }

  Cells bytes(long bytes) {
    return figure(bytes, text(bytes));
  }

  /** @param more goes behind them */
  Cells bytes(long bytes, String more) {
    return figure(bytes, text(bytes) + ", " + more);
  }

  private Cells figure(long exact, String text) {
    html.append("<td sorttable_customkey=\"").append(exact).append("\">").append(escape(text)).append("</td>");
    return this;
  }

  private static String text(long bytes) {
    double shown = bytes;
    int unit = 0;
    while (shown >= KIBI) {
      shown /= KIBI;
      unit++;
    }
    return String.format(Locale.ROOT, unit == 0 ? "%.0f %s" : "%.1f %s", shown, UNITS[unit]);
  }

  /** As text of HTML, and in the value of an attribute. */
  static String escape(String text) {
    StringBuilder escaped = new StringBuilder(text.length());
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      switch (c) {
        case '&' -> escaped.append("&amp;");
        case '<' -> escaped.append("&lt;");
        case '>' -> escaped.append("&gt;");
        case '"' -> escaped.append("&quot;");
        case '\'' -> escaped.append("&#39;");
        default -> escaped.append(c);
      }
    }
    return escaped.toString();
  }
}
