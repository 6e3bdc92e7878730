package org.apache.spark.shuffle.flight.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.grpc.NameResolver;
import io.grpc.NameResolver.ConfigOrError;
import io.grpc.NameResolverRegistry;
import io.grpc.Status;
import io.grpc.SynchronizationContext;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import org.junit.jupiter.api.Test;

class HostResolverTest {
  @Test
  void channelIsAnsweredThatNoThreadCanResolveItsHost() {
    Executor none =
        task -> {
          throw new InternalError("unable to create a native thread");
        };
    NameResolver.ServiceConfigParser parser =
        new NameResolver.ServiceConfigParser() {
          @Override
          public ConfigOrError parseServiceConfig(Map<String, ?> config) {
            return ConfigOrError.fromConfig(config);
          }
        };
    NameResolver.Args args =
        NameResolver.Args.newBuilder()
            .setDefaultPort(1)
            .setProxyDetector(target -> null)
            .setSynchronizationContext(new SynchronizationContext((thread, error) -> { }))
            .setServiceConfigParser(parser)
            .setOffloadExecutor(none)
            .build();
    List<Status> answers = new ArrayList<>();
    URI target = URI.create(HostResolver.target(HostPort.parse("localhost:9110")));
    NameResolver resolver = NameResolverRegistry.getDefaultRegistry().asFactory().newNameResolver(target, args);
    resolver.start(
        new NameResolver.Listener2() {
          @Override
          public void onResult(NameResolver.ResolutionResult result) {
            answers.add(result.getAddressesOrError().getStatus());
          }

          @Override
          public void onError(Status error) {
            answers.add(error);
          }
        });
    assertEquals(List.of(Status.Code.UNAVAILABLE), answers.stream().map(Status::getCode).toList());
  }
}
