/**
 * Spark's end of Flight Shuffle: Spark's own writers and fetcher, with a shuffle server between them.
 *
 * <p>This package has what Spark calls and users name. It is below {@code org.apache.spark.shuffle} because the interfaces
 * it implements are {@code private[spark]} (public in bytecode). The parts it uses, each of which uses only those before it:
 * {@code wire} (messages), {@code metrics} (what tasks move), {@code rows} (buffers of rows, packed and compressed),
 * {@code client} (connections and control calls), {@code blocks} (Spark's names and places of blocks), {@code conf}
 * (options), {@code version} (what Spark's versions have differently), {@code local} (files on this host), {@code push}
 * (map outputs), {@code fetch} (blocks), {@code read} (what Spark's fetcher fetches with), {@code ui} (Spark's pages),
 * {@code driver} (the application and its shuffles), {@code realtime} (real-time mode). The call order, of one shuffle:
 *
 * <ol>
 *   <li>driver: {@link org.apache.spark.shuffle.flight.driver.FlightDriverComponents} registers the application, {@link
 *       org.apache.spark.shuffle.flight.FlightShuffleManager#registerShuffle} the shuffle, or falls back to sort shuffle;
 *   <li>map task: {@code getWriter} gives one of Spark's writers; instead of to local disk it writes through a {@link
 *       org.apache.spark.shuffle.flight.push.DataPusher} to a worker, and the {@code MapStatus} names that worker;
 *   <li>reduce task: {@link org.apache.spark.shuffle.flight.FlightShuffleReader} hands Spark's {@code
 *       ShuffleBlockFetcherIterator} a {@link org.apache.spark.shuffle.flight.read.FlightBlockStoreClient}, which pulls.
 * </ol>
 */
package org.apache.spark.shuffle.flight;
