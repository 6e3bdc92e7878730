package org.apache.spark.shuffle.flight.conf;

import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Consumer;
import javax.net.ssl.SSLException;

/**
 * The client's side of TLS, by Spark's netty: with BoringSSL where that loads, else with the JDK's own. The driver reads the
 * files and passes what they hold to the executors.
 *
 * @param ca null: no TLS
 * @param cert null: none is shown to the server
 * @param key of {@code cert}
 */
public record ClientTls(Pem ca, Pem cert, Pem key) {

  /** What a file holds, and the option that names it. */
  record Pem(FlightConf.Option option, Path path, String text) {

    /**
     * Null without a path.
     *
     * @throws IllegalArgumentException for a file that cannot be read; names the option, the file and what to do
     */
    static Pem read(FlightConf.Option option, Path path) {
      if (path == null) {
        return null;
      }
      try {
        return new Pem(option, path, Files.readString(path, StandardCharsets.ISO_8859_1));
      } catch (IOException e) {
        throw new IllegalArgumentException(
            option.key() + "=" + path.toAbsolutePath() + ": cannot be read; the file is wanted on the driver's machine", e);
      }
    }

    private InputStream stream() {
      return new ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** Without the text: it may be a private key. */
    @Override
    public String toString() {
      return option.key() + "=" + path;
    }
  }

  /**
   * Null without TLS.
   *
   * @throws IllegalArgumentException for a file that holds something else; names the option, the file and what to do
   */
  SslContext context() {
    if (ca == null) {
      return null;
    }
    SslContextBuilder builder = GrpcSslContexts.forClient();
    use(ca, "certificates in PEM form", pem -> builder.trustManager(pem.stream()));
    if (cert != null) {
      use(
          key,
          "a private key in PEM form (PKCS #8, as openssl pkcs8 -topk8 -nocrypt writes it) beside the certificate "
              + cert.path(),
          pem -> builder.keyManager(cert.stream(), pem.stream()));
    }
    try {
      return builder.build();
    } catch (SSLException e) {
      throw new IllegalArgumentException(ca + ": TLS cannot be set up: " + e.getMessage(), e);
    }
  }

  private static void use(Pem pem, String wanted, Consumer<Pem> consumer) {
    try {
      consumer.accept(pem);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(pem + ": the file must hold " + wanted, e);
    }
  }
}
