package org.apache.spark.shuffle.flight.conf;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Derives tokens from the cluster secret (docs/protocol.md, Who may). */
final class Tokens {
  private static final String HMAC = "HmacSHA256";
  private static final String APP_LABEL = "flight-shuffle/1/app/";

  private Tokens() {}

  /** The token that lets its holder act for application {@code app} and no other. */
  static String ofApp(byte[] secret, String app) {
    try {
      Mac mac = Mac.getInstance(HMAC);
      mac.init(new SecretKeySpec(secret, HMAC));
      return Base64.getUrlEncoder().encodeToString(mac.doFinal((APP_LABEL + app).getBytes(StandardCharsets.UTF_8)));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("every Java runtime has " + HMAC, e);
    }
  }
}
