package org.apache.spark.shuffle.flight;

import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Consumer;
import javax.net.ssl.SSLException;

/** The client's side of TLS, by Spark's netty: with BoringSSL where that loads, else with the JDK's own. */
final class ClientTls {
  private ClientTls() {}

  /**
   * @param ca null: no TLS
   * @param cert null: none is shown to the server
   * @return null without TLS
   * @throws IllegalArgumentException for a file that cannot be used; names the option, the file and what to do
   */
  static SslContext context(Path ca, Path cert, Path key) {
    if (ca == null) {
      return null;
    }
    SslContextBuilder builder = GrpcSslContexts.forClient();
    use(FlightConf.TLS_CA, ca, "certificates in PEM form", path -> builder.trustManager(path.toFile()));
    if (cert != null) {
      readable(FlightConf.TLS_CERT, cert);
      use(
          FlightConf.TLS_KEY, key,
          "a private key in PEM form (PKCS #8, as openssl pkcs8 -topk8 -nocrypt writes it) beside the certificate " + cert,
          path -> builder.keyManager(cert.toFile(), path.toFile()));
    }
    try {
      return builder.build();
    } catch (SSLException e) {
      throw new IllegalArgumentException(
          FlightConf.TLS_CA.key() + "=" + ca + ": TLS cannot be set up: " + e.getMessage(), e);
    }
  }

  private static void use(FlightConf.Option option, Path path, String wanted, Consumer<Path> consumer) {
    readable(option, path);
    try {
      consumer.accept(path);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(option.key() + "=" + path + ": the file must hold " + wanted, e);
    }
  }

  private static void readable(FlightConf.Option option, Path path) {
    if (!Files.isReadable(path) || Files.isDirectory(path)) {
      throw new IllegalArgumentException(
          option.key() + "=" + path.toAbsolutePath() + ": cannot be read; the file is wanted on every machine of the application");
    }
  }
}
