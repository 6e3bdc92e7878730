package org.apache.spark.shuffle.flight.net;

import io.grpc.Metadata;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.netty.handler.ssl.SslContext;

/**
 * What a process shows the server with every call, and how it encrypts its connections.
 *
 * @param app whose token it is
 * @param token null: none is shown
 * @param tls null: plain text
 */
public record Credentials(String app, String token, SslContext tls) {
  private static final Metadata.Key<String> TOKEN = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> APP = Metadata.Key.of("flight-shuffle-app", Metadata.ASCII_STRING_MARSHALLER);

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
      if (app != null) {
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
