/**
 * Spark's end of Flight Shuffle: Spark's own writers and fetcher, with a shuffle server between them.
 *
 * <p>The classes live below {@code org.apache.spark.shuffle} because the interfaces they implement are
 * {@code private[spark]} (public in bytecode). The call order, of one shuffle:
 *
 * <ol>
 *   <li>driver: {@link org.apache.spark.shuffle.flight.FlightDriverComponents} registers the application, {@link
 *       org.apache.spark.shuffle.flight.FlightShuffleManager#registerShuffle} the shuffle, or falls back to sort shuffle;
 *   <li>map task: {@code getWriter} gives one of Spark's writers; instead of to local disk it writes through a {@link
 *       org.apache.spark.shuffle.flight.DataPusher} to a worker, and the {@code MapStatus} names that worker;
 *   <li>reduce task: {@link org.apache.spark.shuffle.flight.FlightShuffleReader} hands Spark's {@code
 *       ShuffleBlockFetcherIterator} a {@link org.apache.spark.shuffle.flight.FlightBlockStoreClient}, which pulls.
 * </ol>
 */
package org.apache.spark.shuffle.flight;
