package org.apache.spark.shuffle.flight.client;

import io.grpc.EquivalentAddressGroup;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.Status;
import io.grpc.StatusOr;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.UnknownHostException;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.stream.Stream;

/**
 * Resolves the host of a {@link HostPort} for gRPC, whose own resolver takes what {@code java.net.URI} calls a host name only:
 * an underscore, as in the names of containers, is refused there.
 */
final class HostResolver extends NameResolver {
  private static final String SCHEME = "flight-shuffle";

  static {
    NameResolverRegistry.getDefaultRegistry().register(new Provider());
  }

  private final HostPort address;
  private final Executor executor;
  private Listener2 listener;
  private volatile boolean shutdown;

  private HostResolver(HostPort address, Executor executor) {
    this.address = address;
    this.executor = executor;
  }

  /** What a channel to {@code address} is made for. */
  static String target(HostPort address) {
    try {
      return new URI(SCHEME, "", "/" + address, null, null).toString();
    } catch (URISyntaxException e) {
      throw new IllegalArgumentException(address + " cannot be connected to: " + e.getMessage(), e);
    }
  }

  @Override
  public String getServiceAuthority() {
    return address.authority();
  }

  @Override
  public void start(Listener2 to) {
    listener = to;
    refresh();
  }

  @Override
  public void refresh() {
    // A channel that gets no answer waits for it for ever.
    PeriodicTask.start(
        executor, "resolving " + address.host(), () -> answer(addresses()), why -> answer(unresolved(why)));
  }

  private void answer(StatusOr<List<EquivalentAddressGroup>> addresses) {
    if (!shutdown) {
      listener.onResult(ResolutionResult.newBuilder().setAddressesOrError(addresses).build());
    }
  }

  private StatusOr<List<EquivalentAddressGroup>> unresolved(Throwable why) {
    return StatusOr.fromStatus(
        Status.UNAVAILABLE.withDescription("host " + address.host() + " cannot be resolved").withCause(why));
  }

  private StatusOr<List<EquivalentAddressGroup>> addresses() {
    try {
      List<EquivalentAddressGroup> found =
          Stream.of(InetAddress.getAllByName(address.host()))
              .map(ip -> new EquivalentAddressGroup(new InetSocketAddress(ip, address.port())))
              .toList();
      return StatusOr.fromValue(found);
    } catch (UnknownHostException e) {
      return unresolved(e);
    }
  }

  @Override
  public void shutdown() {
    shutdown = true;
  }

  private static final class Provider extends NameResolverProvider {
    private static final int USUAL_PRIORITY = 5;

    @Override
    public NameResolver newNameResolver(URI target, Args args) {
      return SCHEME.equals(target.getScheme())
          ? new HostResolver(HostPort.parse(target.getPath().substring(1)), args.getOffloadExecutor())
          : null;
    }

    @Override
    public String getDefaultScheme() {
      return SCHEME;
    }

    @Override
    protected boolean isAvailable() {
      return true;
    }

    @Override
    protected int priority() {
      return USUAL_PRIORITY - 1; // gRPC's own stays what a target without a scheme means
    }
  }
}
