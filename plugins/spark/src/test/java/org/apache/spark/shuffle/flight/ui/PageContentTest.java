package org.apache.spark.shuffle.flight.ui;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.metrics.Skew;
import org.apache.spark.shuffle.flight.metrics.Traffic;
import org.apache.spark.shuffle.flight.metrics.WorkerTraffic;
import org.apache.spark.status.ElementTrackingStore;
import org.apache.spark.util.kvstore.InMemoryStore;
import org.junit.jupiter.api.Test;

/** The page's figures are the events', whatever is in them, and no more are kept than fit. */
class PageContentTest {
  private static final String HOSTILE = "<script>alert('x')</script>&\"";

  private static FlightShuffleEvent shuffle(int number, String fallback, String worker) {
    Traffic written = Traffic.written(worker, true, 1234567, 89, 4_000_000);
    Traffic read = new Traffic(Map.of(worker, new WorkerTraffic(0, 0, 0, 0, 0, 11, 22)), 33, 44);
    return new FlightShuffleEvent(number, 1, 7, fallback, written.plus(read), 3, new Skew(10, 20, 30, 5));
  }

  private static String page(Object... events) {
    InMemoryStore store = new InMemoryStore();
    try {
      for (Object event : events) {
        store.write(event);
      }
    } catch (Exception e) {
      throw new AssertionError(e);
    }
    return PageContent.of(store);
  }

  @Test
  void figuresAreThoseOfTheEvent() {
    String page = page(shuffle(4, "", "w1"));
    for (long figure : new long[] {4, 1, 7, 1234567, 89, 33, 4_000_000, 44_000_000, 3, 10, 20, 30, 11, 22}) {
      assertTrue(page.contains("sorttable_customkey=\"" + figure + "\""), figure + " is not in " + page);
    }
    assertTrue(page.contains("1.2 MiB"));
    assertTrue(page.contains("partition 5"));
    assertTrue(page.contains("<td>3.0</td>"));
  }

  @Test
  void namesAreTextWhateverIsInThem() {
    String page =
        page(
            new FlightApplicationEvent(HOSTILE, HOSTILE, HOSTILE, HOSTILE), shuffle(1, "", HOSTILE), shuffle(2, HOSTILE, "w"));
    assertFalse(page.contains("<script"));
    assertEquals(7, page.split("&lt;script&gt;alert\\(&#39;x&#39;\\)&lt;/script&gt;&amp;&quot;", -1).length);
  }

  @Test
  void shufflesThatFellBackHaveTheirReason() {
    String page = page(shuffle(1, "because", "w"));
    assertTrue(page.contains("<td>because</td>"));
    assertFalse(page.contains("1234567"));
  }

  @Test
  void linesByWorkerAreBounded() {
    Map<String, WorkerTraffic> many = new java.util.HashMap<>();
    IntStream.range(0, PageContent.MOST_LINES + 5).forEach(i -> many.put("w" + i, WorkerTraffic.NONE));
    String page = page(new FlightShuffleEvent(1, 1, 1, "", new Traffic(many, 0, 0), 0, null));
    assertEquals(PageContent.MOST_LINES, page.split("<td>w\\d+</td>", -1).length - 1);
    assertTrue(page.contains("The first 2000 of 2005 lines."));
  }

  @Test
  void oldestShufflesAreForgotten() throws Exception {
    InMemoryStore kept = new InMemoryStore();
    SparkConf conf = new SparkConf(false).set("spark.appStateStore.asyncTracking.enable", "false");
    ElementTrackingStore store = new ElementTrackingStore(kept, conf);
    FlightUiListener listener = new FlightUiListener(store);
    for (int i = 0; i < FlightUiListener.SHUFFLES + 50; i++) {
      listener.onOtherEvent(shuffle(i, "", "w"));
    }
    assertEquals(FlightUiListener.SHUFFLES, kept.count(FlightShuffleEvent.class));
    assertEquals(50, kept.view(FlightShuffleEvent.class).iterator().next().shuffle());
    store.close();
  }

  @Test
  void skewIsOfTheSizes() {
    assertEquals(new Skew(3, 100, 100, 1), Skew.of(new long[] {1, 100, 3, 2, 4}));
    assertEquals(new Skew(0, 0, 0, 0), Skew.of(new long[] {0}));
  }
}
