package org.apache.spark.shuffle.flight.ui;

import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.util.kvstore.KVIndex;

/**
 * An application has its first shuffle. Spark's event log has it, and the store of a page's figures.
 *
 * @param server control addresses
 * @param app the application's key at the server
 * @param client version of the plugin
 * @param fallback the policy
 */
public record FlightApplicationEvent(String server, String app, String client, String fallback)
    implements SparkListenerEvent {
  static final String KEY = "application";

  /** There is one. */
  @KVIndex
  public String key() {
    return KEY;
  }
}
