package org.apache.spark.shuffle.flight.fetch;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class PullTest {
  /** Runs what is due when the test asks for it, and schedules one task only. */
  private static final class OnceTimer extends ScheduledThreadPoolExecutor {
    private Runnable only;

    OnceTimer() {
      super(1);
    }

    @Override
    public ScheduledFuture<?> schedule(Runnable task, long delay, TimeUnit unit) {
      if (only != null) {
        throw new AssertionError("not expected");
      }
      only = task;
      return super.schedule(() -> { }, delay, unit);
    }
  }

  @Test
  void pullThatCannotBeWatchedAnyLongerFails() throws Exception {
    BlockingQueue<FlightException> failed = new LinkedBlockingQueue<>();
    PullCall.Listener listener =
        new PullCall.Listener() {
          @Override
          public void pulled() {
            throw new AssertionError("pulled");
          }

          @Override
          public void failed(FlightException failure) {
            failed.add(failure);
          }
        };
    OnceTimer timer = new OnceTimer();
    try (FakeWorker worker = new FakeWorker(call -> null)) {
      BlockAssembler blocks = new BlockAssembler("w", List.of(), MemorySink::new, outcome -> { });
      new Pull(worker.connections().channel(worker.address()), "w", blocks, listener, Duration.ofHours(1), timer)
          .start(GetTicket.getDefaultInstance());
      timer.only.run();
      String why = failed.poll(30, TimeUnit.SECONDS).getMessage();
      assertTrue(why.contains("it cannot be watched"), why);
    } finally {
      timer.shutdownNow();
    }
  }
}
