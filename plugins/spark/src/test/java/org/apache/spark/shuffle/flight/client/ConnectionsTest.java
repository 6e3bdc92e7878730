package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class ConnectionsTest {
  @Test
  void workerThatEndsIsNotReachedAnyMore() throws Exception {
    try (FakeWorker here = new FakeWorker(call -> null)) {
      WorkerAddress address;
      try (FakeWorker worker = new FakeWorker(call -> null)) {
        address = worker.address();
        assertTrue(here.connections().reaches(address));
        assertTrue(here.connections().reaches(address));
      }
      while (here.connections().reaches(address)) { // until its end has come through
        Thread.sleep(1);
      }
      assertTrue(here.connections().reaches(here.address()));
    }
  }

  @Test
  void workerThatNobodyListensForIsNotReached() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = free.getLocalPort();
    }
    try (FakeWorker here = new FakeWorker(call -> null)) {
      assertFalse(here.connections().reaches(new WorkerAddress("gone", "127.0.0.1", port)));
    }
  }
}
