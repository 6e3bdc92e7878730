package org.apache.spark.shuffle.flight;

import java.util.Map;
import java.util.Optional;
import org.apache.spark.shuffle.api.ShuffleExecutorComponents;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.SingleSpillShuffleMapOutputWriter;

/** Gives Spark's writers the push of their map task to write to, as partitions or as one finished spill file. */
final class FlightExecutorComponents implements ShuffleExecutorComponents {
  private final FlightExecutor executor;

  FlightExecutorComponents(FlightExecutor executor) {
    this.executor = executor;
  }

  @Override
  public void initializeExecutor(String appId, String execId, Map<String, String> extraConfigs) {
    // The shuffle's handle says everything a task needs; FlightExecutor finds the credentials in the configuration.
  }

  @Override
  public ShuffleMapOutputWriter createMapOutputWriter(int shuffleId, long mapTaskId, int numPartitions) {
    return new FlightMapOutputWriter(executor.push(shuffleId), numPartitions);
  }

  @Override
  public Optional<SingleSpillShuffleMapOutputWriter> createSingleFileMapOutputWriter(int shuffleId, long mapId) {
    return Optional.of(new FlightSpillFileWriter(executor.push(shuffleId)));
  }
}
