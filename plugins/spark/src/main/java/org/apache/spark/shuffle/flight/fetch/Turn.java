package org.apache.spark.shuffle.flight.fetch;

import org.apache.spark.shuffle.flight.blocks.FollowingBlocks;

/**
 * One reduce task of a shuffle that reads one small partition, from all maps.
 *
 * @param ahead what this process reads ahead of that shuffle
 * @param partition which one it reads
 * @param partitions how many there are
 * @param bytes about how many it has
 * @param following what comes behind it
 */
public record Turn(Prefetcher ahead, int partition, int partitions, long bytes, FollowingBlocks following) {}
