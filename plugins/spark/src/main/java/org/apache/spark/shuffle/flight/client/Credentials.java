package org.apache.spark.shuffle.flight.client;

import io.grpc.Metadata;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.netty.handler.ssl.SslContext;

/**
 * What a process shows the server with every call, and how it encrypts its connections.
 *
 * @param app whose token it is: an application's name, of whichever run
 * @param token null: none is shown
 * @param tls null: plain text
 */
public record Credentials(String app, String token, SslContext tls) {
  private static final Metadata.Key<String> TOKEN = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> APP = Metadata.Key.of("flight-shuffle-app", Metadata.ASCII_STRING_MARSHALLER);

  /** Stands between an application's name and what makes one run of it unique. */
  public static final char RUN_SEPARATOR = '~';

  /** The application of which {@code run} is a run. */
  public static String nameOf(String run) {
    int end = run.indexOf(RUN_SEPARATOR);
    return end < 0 ? run : run.substring(0, end);
  }

  /** Has every call of a channel carry them. */
  void applyTo(NettyChannelBuilder channel) {
    if (tls == null) {
      channel.usePlaintext();
    } else {
      channel.sslContext(tls);
    }
    if (token != null) {
      Metadata headers = new Metadata();
      headers.put(TOKEN, "Bearer " + token);
      if (app != null && !app.isEmpty()) {
        headers.put(APP, app);
      }
      channel.intercept(MetadataUtils.newAttachHeadersInterceptor(headers));
    }
  }

  /** Without the token. */
  @Override
  public String toString() {
    return "Credentials[app=" + app + ", tls=" + (tls != null) + "]";
  }
}
