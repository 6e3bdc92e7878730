package org.apache.spark.shuffle.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.flight.FakeMaster.Fault;
import org.apache.spark.shuffle.flight.net.WorkerAddress;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What becomes of a shuffle that is registered while something goes wrong at the server, or in the driver. */
@Timeout(60)
class RegistrationTest {
  private FakeMaster master;
  private FlightDriverComponents driver;

  @BeforeEach
  void startMaster() throws IOException {
    master = new FakeMaster();
  }

  @AfterEach
  void stop() {
    if (driver != null) {
      driver.cleanupApplication();
    }
    master.close();
  }

  private void start(String fallback, String retryWindow) {
    start(fallback, retryWindow, "10s");
  }

  private void start(String fallback, String retryWindow, String connectTimeout) {
    SparkConf conf =
        new SparkConf(false)
            .set(FlightConf.SERVER.key(), master.address())
            .set(FlightConf.FALLBACK.key(), fallback)
            .set(FlightConf.RETRY_WINDOW.key(), retryWindow)
            .set(FlightConf.CONNECT_TIMEOUT.key(), connectTimeout);
    driver = new FlightDriverComponents(FlightConf.parse(conf), "test", BuildInfo.read(), UserFallback.of(conf));
    driver.initializeApplication();
  }

  private static ShuffleHandle sent(BooleanSupplier registered) throws Exception {
    return copy(new FlightShuffleHandle(new BaseShuffleHandle<>(7, null), "a", 1, 0, registered));
  }

  private static ShuffleHandle copy(ShuffleHandle handle) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(handle);
    }
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
      return (ShuffleHandle) in.readObject();
    }
  }

  private Optional<WorkerAddress> register(int shuffle) {
    return driver.register(shuffle, 1, 1, false);
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "never"})
  void interruptedRegistrationSaysNothingOfTheServer(String fallback) throws Exception {
    start(fallback, "60s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.SILENCE);
    CompletableFuture<Optional<WorkerAddress>> given = new CompletableFuture<>();
    Thread query = registering(given);
    awaitCall("RegisterShuffle");
    query.interrupt(); // as Spark does with a streaming query that is stopped

    ExecutionException end = assertThrows(ExecutionException.class, () -> given.get(30, TimeUnit.SECONDS));
    assertInstanceOf(UncheckedIOException.class, end.getCause());
    assertInstanceOf(InterruptedIOException.class, end.getCause().getCause()); // which Spark takes for a stop, not a failure
    assertTrue(register(1).isPresent());
    assertTrue(driver.supportsReliableStorage());
  }

  private Thread registering(CompletableFuture<Optional<WorkerAddress>> given) {
    FlightDriverComponents own = driver;
    Thread query =
        new Thread(
            () -> {
              try {
                given.complete(own.register(0, 1, 1, false));
              } catch (RuntimeException e) {
                given.completeExceptionally(e);
              }
            });
    query.start();
    return query;
  }

  @Test
  void nobodyWaitsBeyondTheEndOfTheApplication() throws Exception {
    start("never", "600s");
    master.calls().clear();
    master.meet("RegisterShuffle", Collections.nCopies(2000, Fault.NO_WORKER).toArray(Fault[]::new));
    CompletableFuture<Optional<WorkerAddress>> given = new CompletableFuture<>();
    registering(given);
    awaitCall("RegisterShuffle");
    driver.cleanupApplication();
    driver = null;
    assertThrows(ExecutionException.class, () -> given.get(30, TimeUnit.SECONDS));
  }

  @Test
  void neverWaitsForAWorker() {
    start("never", "60s");
    master.meet("RegisterShuffle", Fault.NO_WORKER, Fault.NO_WORKER);
    assertTrue(register(0).isPresent());
  }

  @Test
  void neverRegistersAnApplicationThatWasForgotten() throws Exception {
    start("never", "60s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.UNKNOWN_APP);
    assertTrue(register(0).isPresent());
    awaitCall("RegisterApp");
  }

  @Test
  void neverFailsWhenTheWindowCloses() {
    start("never", "1s");
    master.meet("RegisterShuffle", Fault.NO_WORKER, Fault.NO_WORKER, Fault.NO_WORKER, Fault.NO_WORKER, Fault.NO_WORKER);
    UncheckedIOException failure = assertThrows(UncheckedIOException.class, () -> register(0));
    String message = failure.getCause().getMessage();
    assertTrue(message.contains(master.address()) && message.contains("no worker has joined it"), message);
    assertTrue(message.contains("tried for 1 s (spark.shuffle.flight.retryWindow)"), message);
  }

  @Test
  void autoFallsBackAtOnceAndComesBack() throws Exception {
    start("auto", "60s");
    master.meet("RegisterShuffle", Fault.NO_WORKER);
    assertEquals(Optional.empty(), register(0));
    assertFalse(driver.supportsReliableStorage());
    master.calls().clear();
    awaitCall("Heartbeat");
    awaitCall("Heartbeat"); // the first one has been answered when the second one comes
    assertTrue(register(1).isPresent());
  }

  @Test
  void onlyWhatTheServerMayKnowIsUnregisteredThere() throws Exception {
    start("auto", "60s");
    register(3);
    master.calls().clear();
    driver.removeShuffle(4, true);
    driver.removeShuffle(3, true);
    driver.removeShuffle(3, true);
    register(5);
    driver.removeShuffle(5, true);
    awaitCall("UnregisterShuffle");
    awaitCall("RegisterShuffle");
    awaitCall("UnregisterShuffle");
    driver.cleanupApplication();
    driver = null;
    assertFalse(master.calls().contains("UnregisterShuffle"));
  }

  @Test
  void driverGoesOnWhileTheServerIsAskedAndTasksGetSparksHandleIfThatFails() throws Exception {
    start("auto", "60s", "1s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.SILENCE);
    master.meet("Heartbeat", Fault.SILENCE); // an answered one would bring the server back into use
    BooleanSupplier registered = driver.registerSoon(0, 1, 1);
    assertTrue(driver.supportsReliableStorage()); // not settled yet
    awaitCall("RegisterShuffle");

    assertInstanceOf(BaseShuffleHandle.class, sent(registered));
    assertFalse(driver.supportsReliableStorage());
    assertTrue(register(1).isEmpty()); // the shuffles to come know it
    awaitCall("Heartbeat given up");
    awaitCall("Heartbeat");
    awaitCall("Heartbeat"); // the one before has been answered
    assertTrue(register(2).isPresent());
    assertInstanceOf(BaseShuffleHandle.class, sent(registered)); // what a shuffle is it stays: the next stage has to find it
  }

  @Test
  void tasksGetTheHandleOfAShuffleThatTheServerHas() throws Exception {
    start("auto", "60s");
    master.calls().clear();
    BooleanSupplier registered = driver.registerSoon(0, 1, 1);
    assertInstanceOf(FlightShuffleHandle.class, sent(registered));
    assertInstanceOf(FlightShuffleHandle.class, copy(sent(registered))); // what has arrived may be sent on
    awaitCall("RegisterShuffle");
    assertFalse(master.calls().contains("RegisterShuffle")); // asked once
  }

  @Test
  void whatWentWrongLongBeforeTheHandleIsSentSaysNothing() throws Exception {
    start("auto", "60s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.UNKNOWN_APP);
    BooleanSupplier registered = driver.registerSoon(0, 1, 1);
    awaitCall("RegisterShuffle");
    Thread.sleep(1500);
    assertInstanceOf(FlightShuffleHandle.class, sent(registered));
    assertTrue(driver.supportsReliableStorage());
  }

  @Test
  void neverAsksAgainWhenTheHandleIsSent() throws Exception {
    start("never", "60s");
    master.meet("RegisterShuffle", Fault.NO_WORKER, Fault.UNKNOWN_APP);
    assertInstanceOf(FlightShuffleHandle.class, sent(driver.registerSoon(0, 1, 1)));
    assertTrue(driver.supportsReliableStorage());
  }

  @Test
  void neverFailsTheStageAndTheNextOneFindsOutAnew() throws Exception {
    start("never", "1s");
    master.meet("RegisterShuffle", Collections.nCopies(5, Fault.NO_WORKER).toArray(Fault[]::new));
    BooleanSupplier registered = driver.registerSoon(0, 1, 1);
    UncheckedIOException failure = assertThrows(UncheckedIOException.class, () -> sent(registered));
    assertTrue(failure.getMessage().contains("no worker has joined it; tried for 1 s"), failure.getMessage());
    assertInstanceOf(FlightShuffleHandle.class, sent(registered));
  }

  @Test
  void whileTheServerIsKnownToBeAwayNeverWaitsAtOnce() {
    start("never", "300ms"); // over before the first heartbeat brings the server back into use
    master.meet("RegisterShuffle", Collections.nCopies(20, Fault.NO_WORKER).toArray(Fault[]::new));
    assertThrows(UncheckedIOException.class, () -> register(0));
    assertThrows(UncheckedIOException.class, () -> driver.registerSoon(1, 1, 1));
  }

  @Test
  void serverHearsOfTheEndOfAShuffleAfterItsBeginning() throws Exception {
    start("auto", "60s", "1s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.SILENCE);
    driver.registerSoon(0, 1, 1);
    awaitCall("RegisterShuffle");
    driver.removeShuffle(0, true);
    awaitCall("RegisterShuffle given up");
    awaitCall("UnregisterShuffle");
  }

  private void awaitCall(String name) throws InterruptedException {
    String call;
    do {
      call = master.calls().poll(30, TimeUnit.SECONDS);
      assertTrue(call != null, "no " + name + " came");
    } while (!call.equals(name));
  }
}
