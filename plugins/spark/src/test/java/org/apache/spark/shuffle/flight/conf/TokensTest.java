package org.apache.spark.shuffle.flight.conf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import org.apache.spark.shuffle.flight.client.Credentials;
import org.junit.jupiter.api.Test;

class TokensTest {
  /** The example in docs/protocol.md; Python's test has the same. */
  @Test
  void derivationIsTheProtocols() {
    byte[] secret = new byte[32];
    for (int i = 0; i < secret.length; i++) {
      secret[i] = (byte) i;
    }
    assertEquals("f4XgHHAzVMZ_93PAU5bsU7l-9mihTt6q4Xd4KLPiupk=", Tokens.ofApp(secret, "app-a"));
  }

  @Test
  void credentialsDoNotShowTheirToken() {
    assertFalse(new Credentials("app-a", "the-token", null).toString().contains("the-token"));
  }
}
