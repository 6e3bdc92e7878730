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
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.flight.FakeMaster.Fault;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.driver.FlightDriverComponents;
import org.apache.spark.shuffle.flight.driver.ShuffleRegistration;
import org.apache.spark.shuffle.flight.proto.Driver;
import org.apache.spark.shuffle.flight.proto.HeartbeatRequest;
import org.apache.spark.shuffle.flight.proto.HelloRequest;
import org.apache.spark.shuffle.flight.proto.RegisterAppRequest;
import org.apache.spark.shuffle.flight.proto.RegisterShuffleRequest;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.proto.UnregisterShuffleRequest;
import org.apache.spark.util.Utils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What becomes of a shuffle that is registered while something goes wrong at the server, or in the driver. */
@Timeout(60)
class RegistrationTest {
  private static final Driver DRIVER = Driver.newBuilder().setUser("ann").setHost("edge-7").setBegan(7.5).build();

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
    start(fallback, retryWindow, connectTimeout, master.address());
  }

  private void start(String fallback, String retryWindow, String connectTimeout, String servers) {
    SparkConf conf =
        new SparkConf(false)
            .set(FlightConf.SERVER.key(), servers)
            .set(FlightConf.APP.key(), "daily")
            .set(FlightConf.FALLBACK.key(), fallback)
            .set(FlightConf.RETRY_WINDOW.key(), retryWindow)
            .set(FlightConf.CONNECT_TIMEOUT.key(), connectTimeout);
    driver = new FlightDriverComponents(FlightConf.parse(conf), "test", DRIVER, "test client", shuffle -> null);
    driver.initializeApplication();
  }

  @Test
  void applicationGoesToTheMastersThatAnotherRegistrysMasterNames() throws Exception {
    try (FakeMaster other = new FakeMaster().refuseTo(master.address())) {
      master.of("b");
      start("never", "60s", "10s", other.address());
      RegisterAppRequest request = RegisterAppRequest.parseFrom(master.requests("RegisterApp").remove());
      assertTrue(request.getApp().matches("daily~\\w+~b"), request.getApp());
      assertEquals("daily", HelloRequest.parseFrom(master.requests("Hello").remove()).getApp());
      assertEquals(List.of("Hello"), List.copyOf(other.calls()));
      assertEquals(request.getApp(), driver.register(7, 1, 1, false).orElseThrow().key().getApp());
      assertEquals(List.of("Hello"), List.copyOf(other.calls()));
    }
  }

  @Test
  void registrationAndHeartbeatsNameTheDriver() throws Exception {
    start("never", "60s");
    assertEquals(DRIVER, RegisterAppRequest.parseFrom(master.requests("RegisterApp").remove()).getDriver());
    awaitCall("Heartbeat"); // so that a master that has started since has it too
    assertEquals(DRIVER, HeartbeatRequest.parseFrom(master.requests("Heartbeat").remove()).getDriver());
  }

  @Test
  void driverIsDescribedAsSparkDescribesIt() {
    SparkConf conf = new SparkConf(false).set("spark.driver.host", "edge-7");
    Driver described = FlightShuffleDataIO.describe(conf);
    assertEquals("edge-7", described.getHost());
    assertEquals(Utils.getCurrentUserName(), described.getUser());
    assertTrue(described.getBegan() > 0);
    assertEquals("", FlightShuffleDataIO.describe(new SparkConf(false)).getHost());
  }

  @Test
  void mastersThatNameOneAnotherAreNotAskedForEver() throws Exception {
    try (FakeMaster other = new FakeMaster().refuseTo(master.address())) {
      master.refuseTo(other.address());
      UncheckedIOException refused =
          assertThrows(UncheckedIOException.class, () -> start("never", "60s", "10s", other.address()));
      assertTrue(refused.getMessage().contains("WRONG_MASTER"), refused.getMessage());
      assertEquals(4, master.calls().size() + other.calls().size());
    }
  }

  private static ShuffleHandle sent(Supplier<Optional<ShuffleKey>> registered) throws Exception {
    return copy(new FlightShuffleHandle(new BaseShuffleHandle<>(7, null), 1, 0, null, registered));
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

  private Optional<ShuffleRegistration.Registered> register(int shuffle) {
    return driver.register(shuffle, 1, 1, false);
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "never"})
  void interruptedRegistrationSaysNothingOfTheServer(String fallback) throws Exception {
    start(fallback, "60s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.SILENCE);
    CompletableFuture<Optional<ShuffleRegistration.Registered>> given = new CompletableFuture<>();
    Thread query = registering(given);
    awaitCall("RegisterShuffle");
    query.interrupt(); // as Spark does with a streaming query that is stopped

    ExecutionException end = assertThrows(ExecutionException.class, () -> given.get(30, TimeUnit.SECONDS));
    assertInstanceOf(UncheckedIOException.class, end.getCause());
    assertInstanceOf(InterruptedIOException.class, end.getCause().getCause()); // which Spark takes for a stop, not a failure
    assertTrue(register(1).isPresent());
    assertTrue(driver.supportsReliableStorage());
  }

  private Thread registering(CompletableFuture<Optional<ShuffleRegistration.Registered>> given) {
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
    CompletableFuture<Optional<ShuffleRegistration.Registered>> given = new CompletableFuture<>();
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
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(0, 1, 1);
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
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(0, 1, 1);
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
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(0, 1, 1);
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
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(0, 1, 1);
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

  private static ShuffleKey key(Supplier<Optional<ShuffleKey>> registered) throws Exception {
    return ((FlightShuffleHandle) sent(registered)).key();
  }

  @Test
  void shuffleIsOfThisRunAndOfTheGenerationThatTheServerGaveIt() throws Exception {
    start("auto", "60s");
    ShuffleKey key = key(driver.registerSoon(7, 1, 1));
    String run = RegisterAppRequest.parseFrom(master.requests("RegisterApp").peek()).getApp();
    assertTrue(run.matches("daily~[A-Za-z0-9_-]{16}"), run);
    assertEquals(ShuffleKey.newBuilder().setApp(run).setShuffle(7).setGeneration(1001).build(), key);
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "never"})
  void cleanedShuffleThatIsWantedAgainIsAnotherGeneration(String fallback) throws Exception {
    start(fallback, "60s");
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(7, 1, 1);
    ShuffleKey first = key(registered);
    driver.removeShuffle(7, false); // reported soon: that must not end the new generation
    ShuffleKey second = key(registered);
    assertEquals(1001, first.getGeneration());
    assertEquals(1002, second.getGeneration());
    assertEquals(second, key(registered));
    assertEquals(
        first, UnregisterShuffleRequest.parseFrom(master.requests("UnregisterShuffle").element()).getShuffle());
    assertEquals(1, master.requests("UnregisterShuffle").size());
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "never"})
  void droppedApplicationIsRegisteredAgainAndItsShufflesAnew(String fallback) throws Exception {
    start(fallback, "60s");
    Supplier<Optional<ShuffleKey>> registered = driver.registerSoon(7, 1, 1);
    key(registered);
    master.calls().clear();
    master.drop();
    awaitCall("RegisterApp");
    awaitCall("Heartbeat"); // the application is there again
    assertEquals(1002, key(registered).getGeneration());
    assertTrue(driver.supportsReliableStorage());
    assertEquals(
        RegisterAppRequest.parseFrom(master.requests("RegisterApp").poll()),
        RegisterAppRequest.parseFrom(master.requests("RegisterApp").poll()), "the same run");
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "never"})
  void shuffleThatFindsTheApplicationDroppedRegistersBoth(String fallback) throws Exception {
    start(fallback, "60s");
    master.calls().clear();
    master.meet("RegisterShuffle", Fault.APP_EXPIRED);
    assertInstanceOf(FlightShuffleHandle.class, sent(driver.registerSoon(7, 1, 1)));
    awaitCall("RegisterApp");
  }

  @Test
  void serverOfVersion1HasOneRunOfANameAndNoGenerations() throws Exception {
    master.close();
    master = new FakeMaster(1);
    start("never", "60s");
    ShuffleKey key = key(driver.registerSoon(7, 1, 1));
    assertEquals(ShuffleKey.newBuilder().setApp("daily").setShuffle(7).build(), key);
    assertEquals(key, RegisterShuffleRequest.parseFrom(master.requests("RegisterShuffle").peek()).getShuffle());
  }

  @Test
  void masterThatDoesNotLeadIsPassedOver() throws Exception {
    try (FakeMaster leader = new FakeMaster();
        ServerSocket nobody = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      String closed = "127.0.0.1:" + nobody.getLocalPort();
      nobody.close();
      for (String name : List.of("Hello", "RegisterApp", "RegisterShuffle")) {
        master.meet(name, Collections.nCopies(20, Fault.SHUTTING_DOWN).toArray(Fault[]::new));
      }
      start("never", "60s", "10s", closed + "," + master.address() + "," + leader.address());
      assertTrue(register(0).isPresent());
      assertEquals(1, leader.requests("RegisterShuffle").size());
      assertEquals(0, master.requests("RegisterShuffle").size(), "who has answered is asked first");
    }
  }

  @Test
  void masterThatStandsStillIsPassedOver() throws Exception {
    try (FakeMaster leader = new FakeMaster()) {
      start("never", "60s", "4s", master.address() + "," + leader.address());
      master.meet("RegisterShuffle", Fault.SILENCE);
      assertTrue(register(0).isPresent());
      assertEquals(1, leader.requests("RegisterShuffle").size());
    }
  }

  private void awaitCall(String name) throws InterruptedException {
    String call;
    do {
      call = master.calls().poll(30, TimeUnit.SECONDS);
      assertTrue(call != null, "no " + name + " came");
    } while (!call.equals(name));
  }
}
