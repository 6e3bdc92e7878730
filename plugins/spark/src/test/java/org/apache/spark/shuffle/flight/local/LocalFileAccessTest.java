package org.apache.spark.shuffle.flight.local;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.shuffle.flight.client.FakeWorker;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.proto.ErrorCode;
import org.apache.spark.shuffle.flight.proto.ProbeReply;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(180)
class LocalFileAccessTest {
  private static final ShuffleKey SHUFFLE = ShuffleKey.newBuilder().setApp("app~1").setShuffle(7).setGeneration(5).build();
  private static final Duration LONG = Duration.ofSeconds(60);

  @TempDir Path directory;

  private static List<byte[]> reply(String path) {
    return List.of(FakeWorker.result(ProbeReply.newBuilder().setNonceFile(path).build()));
  }

  @Test
  void killedTaskThatWaitedForTheAnswerSaysNothingOfTheWorker() throws Exception {
    Path nonce = Files.write(directory.resolve("nonce"), new byte[] {1, 2, 3});
    CountDownLatch asked = new CountDownLatch(1);
    AtomicBoolean answers = new AtomicBoolean();
    try (FakeWorker worker =
        new FakeWorker(
            call -> {
              asked.countDown();
              return answers.get() ? reply(nonce.toString()) : null;
            })) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      Thread task = new Thread(() -> localFiles.nonce(worker.address(), SHUFFLE));
      task.start();
      asked.await();
      task.interrupt();
      task.join();
      answers.set(true);
      assertEquals(ByteString.copyFrom(new byte[] {1, 2, 3}), localFiles.nonce(worker.address(), SHUFFLE));
    }
  }

  @ParameterizedTest
  @EnumSource(
      names = {"UNKNOWN_APP", "APP_EXPIRED", "UNKNOWN_SHUFFLE", "MAP_OUTPUT_LOST", "STORAGE_FULL", "QUOTA_EXCEEDED"})
  void refusalOfAnApplicationLeavesLocalFilesOn(ErrorCode code) throws Exception {
    Path nonce = Files.write(directory.resolve("nonce"), new byte[] {1});
    AtomicInteger probes = new AtomicInteger();
    try (FakeWorker worker =
        new FakeWorker(
            call -> {
              probes.incrementAndGet();
              return reply(nonce.toString());
            })) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      ByteString known = localFiles.nonce(worker.address(), SHUFFLE);
      localFiles.failed(worker.address(), FlightException.found("w", code, "refused"));
      assertEquals(known, localFiles.nonce(worker.address(), SHUFFLE));
      assertEquals(1, probes.get());
    }
  }

  @Test
  void failureOfTheFilesThemselvesMeansTheWire() throws Exception {
    Path nonce = Files.write(directory.resolve("nonce"), new byte[] {1});
    try (FakeWorker worker = new FakeWorker(call -> reply(nonce.toString()))) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      localFiles.nonce(worker.address(), SHUFFLE);
      localFiles.failed(worker.address(), FlightException.found("w", ErrorCode.COMMIT_MISMATCH, "another file"));
      assertNull(localFiles.nonce(worker.address(), SHUFFLE));
    }
  }

  @Test
  void workerThatDoesNotKnowTheApplicationIsAskedAgain() throws Exception {
    Path nonce = Files.write(directory.resolve("nonce"), new byte[] {1});
    AtomicBoolean known = new AtomicBoolean();
    try (FakeWorker worker = new FakeWorker(call -> known.get() ? reply(nonce.toString()) : List.of(), ErrorCode.APP_EXPIRED)) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      assertNull(localFiles.nonce(worker.address(), SHUFFLE));
      known.set(true);
      assertEquals(1, localFiles.nonce(worker.address(), SHUFFLE).size());
    }
  }

  @Test
  void pathThatIsNoneMeansTheWire() throws Exception {
    try (FakeWorker worker = new FakeWorker(call -> reply("\0"))) {
      LocalFileAccess localFiles = new LocalFileAccess(worker.connections(), true, LONG);
      assertNull(localFiles.nonce(worker.address(), SHUFFLE));
      assertTrue(localFiles.anyNonce(worker.address(), SHUFFLE).isEmpty());
    }
  }
}
