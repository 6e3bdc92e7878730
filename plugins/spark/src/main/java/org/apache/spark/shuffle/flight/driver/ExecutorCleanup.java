package org.apache.spark.shuffle.flight.driver;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeoutException;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.BlockManagerMaster;
import org.apache.spark.storage.BlockManagerMessages.RemoveShuffle;
import org.apache.spark.util.RpcUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.Iterator;
import scala.concurrent.Await;
import scala.concurrent.Future;
import scala.reflect.ClassTag$;

/**
 * Has all executors free what they keep of a shuffle that is over: local files if it fell back, blocks that were read ahead,
 * indexes of files, and what Spark keeps of it.
 *
 * <p>Spark's {@code BlockManagerMaster.removeShuffle} asks the driver's block manager as well, and that unregisters the shuffle
 * in the driver's tracker a moment later. A shuffle that is wanted again meanwhile ends Spark's scheduler then. So the
 * executors are asked one by one, and the driver forgets the outputs but not the shuffle.
 */
final class ExecutorCleanup {
  private static final Logger LOG = LoggerFactory.getLogger(ExecutorCleanup.class);

  private ExecutorCleanup() {}

  /** @param blocking whether to return when the executors have done it, or after Spark's RPC timeout */
  static void remove(SparkEnv env, int shuffle, boolean blocking) {
    forget(env, shuffle);
    env.shuffleManager().unregisterShuffle(shuffle); // of local mode's executor, which is in this process
    List<Future<Object>> asked = ask(env, shuffle);
    if (blocking) {
      await(env, shuffle, asked);
    }
  }

  private static void forget(SparkEnv env, int shuffle) {
    if (env.mapOutputTracker() instanceof MapOutputTrackerMaster tracker) {
      Option<ShuffleStatus> status = tracker.shuffleStatuses().get(shuffle);
      if (status.isDefined()) {
        status.get().removeOutputsByFilter(location -> true);
        tracker.incrementEpoch();
      }
    }
  }

  private static List<Future<Object>> ask(SparkEnv env, int shuffle) {
    List<Future<Object>> asked = new ArrayList<>();
    BlockManagerMaster master = env.blockManager().master();
    Iterator<BlockManagerId> executors = master.getPeers(env.blockManager().blockManagerId()).iterator();
    while (executors.hasNext()) {
      Option<RpcEndpointRef> endpoint = master.getExecutorEndpointRef(executors.next().executorId());
      if (endpoint.isDefined()) {
        asked.add(endpoint.get().ask(new RemoveShuffle(shuffle), ClassTag$.MODULE$.Object()));
      }
    }
    return asked;
  }

  private static void await(SparkEnv env, int shuffle, List<Future<Object>> asked) {
    try {
      for (Future<Object> each : asked) {
        Await.ready(each, RpcUtils.askRpcTimeout(env.conf()).duration());
      }
    } catch (TimeoutException e) {
      LOG.info("an executor has not freed shuffle {} yet: {}", shuffle, e.getMessage());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
