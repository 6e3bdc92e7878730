package org.apache.spark.shuffle.flight.push;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.Committed;

/**
 * Where the task thread of a push waits: for the connection, for credit, for the answer to a commit.
 *
 * <p>gRPC's callbacks change the state, one thread waits. A wait ends with an error when the stream ends, when nothing
 * has changed for the whole timeout, or when the task is killed.
 */
final class CreditGate {
  /** A killed task that Spark does not interrupt says so only when asked; this is how often a wait asks. */
  private static final long KILL_CHECK_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final String peer;
  private final Runnable killCheck;
  private SendWindow window = SendWindow.initial();
  private long changes;
  private long creditWaitNanos; // by the waiting thread only
  private boolean connected;
  private Committed committed;
  private FlightException ended;

  /** @param killCheck throws when the task was killed */
  CreditGate(String peer, Runnable killCheck) {
    this.peer = peer;
    this.killCheck = killCheck;
  }

  void connected() {
    change(() -> connected = true);
  }

  void granted(long total) {
    change(() -> window = window.afterGrant(total));
  }

  void committed(Committed answer) {
    change(() -> committed = answer);
  }

  /** The first reason counts: what the worker said, not how gRPC closed the stream afterwards. */
  void ended(FlightException reason) {
    change(() -> ended = ended == null ? reason : ended);
  }

  private void change(Runnable change) {
    lock.lock();
    try {
      change.run();
      changes++;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  void awaitConnected(Duration timeout) throws IOException {
    await(() -> connected, timeout, "the connection");
  }

  /** Whether {@code bytes} can be sent at once. */
  boolean admits(long bytes) {
    lock.lock();
    try {
      return window.admits(bytes);
    } finally {
      lock.unlock();
    }
  }

  /** @throws FlightException what the stream has ended with, if it has */
  void check() throws FlightException {
    lock.lock();
    try {
      if (ended != null) {
        throw ended;
      }
    } finally {
      lock.unlock();
    }
  }

  /** Waits until {@code bytes} may be sent, and takes them from the window. Fails once the stream has ended. */
  void take(long bytes, Duration timeout) throws IOException {
    creditWaitNanos += await(() -> window.admits(bytes), timeout, "credit");
    lock.lock();
    try {
      check();
      window = window.afterSending(bytes);
    } finally {
      lock.unlock();
    }
  }

  /** How long {@link #take} has waited. */
  long creditWaitNanos() {
    return creditWaitNanos;
  }

  Committed awaitCommitted(Duration timeout) throws IOException {
    await(() -> committed != null, timeout, "the answer to the commit");
    return committed;
  }

  /** Returns how long it has waited. */
  private long await(BooleanSupplier condition, Duration timeout, String what) throws IOException {
    try {
      lock.lockInterruptibly();
    } catch (InterruptedException e) {
      throw interrupted(what);
    }
    try {
      long seen = changes;
      long start = System.nanoTime();
      long deadline = start + timeout.toNanos();
      boolean waited = false;
      while (!condition.getAsBoolean()) {
        if (ended != null) {
          throw ended;
        }
        killCheck.run();
        if (changes != seen) {
          seen = changes;
          deadline = System.nanoTime() + timeout.toNanos();
        }
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          throw FlightException.broken(peer, "nothing heard for " + timeout.toSeconds() + " s while waiting for " + what, null);
        }
        waited = true;
        changed.awaitNanos(Math.min(left, KILL_CHECK_NANOS));
      }
      return waited ? System.nanoTime() - start : 0;
    } catch (InterruptedException e) {
      throw interrupted(what);
    } finally {
      lock.unlock();
    }
  }

  private InterruptedIOException interrupted(String what) {
    Thread.currentThread().interrupt();
    return new InterruptedIOException("interrupted while waiting for " + what + " from " + peer);
  }
}
