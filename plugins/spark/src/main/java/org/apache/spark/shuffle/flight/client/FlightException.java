package org.apache.spark.shuffle.flight.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.netty.handler.ssl.NotSslRecordException;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.shuffle.flight.proto.Error;
import org.apache.spark.shuffle.flight.proto.ErrorCode;

/**
 * A request that Flight Shuffle could not serve: what broke, where, and what to do next.
 *
 * <p>{@link #code} is null when the peer said nothing in the protocol's own words: it could not be reached, or its stream
 * broke.
 */
public final class FlightException extends IOException {
  private static final long serialVersionUID = 1L;

  /** The trailing metadata in which a failed control call carries its {@code Error} (docs/protocol.md). */
  private static final Metadata.Key<byte[]> CONTROL_ERROR =
      Metadata.Key.of("flight-shuffle-error-bin", Metadata.BINARY_BYTE_MARSHALLER);

  /** Where Arrow's Flight puts the extra info of an error: an {@code Error} when a worker refuses a whole call. */
  private static final Metadata.Key<byte[]> DATA_ERROR =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  /** All that netty says of a peer that hangs up on a client which does not speak TLS as it should. */
  private static final String CLOSED = "Network closed for unknown reason";

  /** The server has no such application: it dropped it, or was started anew. */
  private static final Set<ErrorCode> NO_APP = EnumSet.of(ErrorCode.UNKNOWN_APP, ErrorCode.APP_EXPIRED);

  /** About an application, its shuffles and outputs, or room for them: over the wire the answer is the same. */
  private static final Set<ErrorCode> OF_THE_DATA =
      EnumSet.of(
          ErrorCode.UNKNOWN_APP, ErrorCode.APP_EXPIRED, ErrorCode.APP_EXISTS, ErrorCode.UNKNOWN_SHUFFLE,
          ErrorCode.SHUFFLE_EXISTS, ErrorCode.MAP_OUTPUT_NOT_WRITTEN, ErrorCode.MAP_OUTPUT_LOST,
          ErrorCode.ATTEMPT_SUPERSEDED, ErrorCode.STORAGE_FULL, ErrorCode.QUOTA_EXCEEDED);

  private final ErrorCode code;
  private final boolean passing;
  private final String masters;

  private FlightException(String message, ErrorCode code, boolean passing, Throwable cause) {
    this(message, code, passing, cause, "");
  }

  private FlightException(String message, ErrorCode code, boolean passing, Throwable cause, String masters) {
    super(message, cause);
    this.code = code;
    this.passing = passing;
    this.masters = masters;
  }

  /** The error a peer reported. */
  public static FlightException reported(String peer, Error error) {
    String remedy = error.getRemedy().isEmpty() ? "" : " (" + error.getRemedy() + ")";
    ErrorCode code = error.getCode();
    boolean passing =
        code == ErrorCode.OVERLOADED || code == ErrorCode.SHUTTING_DOWN || code == ErrorCode.DEADLINE;
    return new FlightException(
        peer + ": " + code + ": " + error.getMessage() + remedy, code, passing, null, error.getMasters());
  }

  /** The error behind the gRPC status a call ended with. */
  public static FlightException ended(String peer, Status status, Metadata trailers) {
    byte[] encoded = trailers == null ? null : trailers.get(CONTROL_ERROR);
    if (encoded == null && trailers != null) {
      encoded = trailers.get(DATA_ERROR);
    }
    if (encoded != null) {
      try {
        return reported(peer, Error.parseFrom(encoded));
      } catch (IOException e) {
        return broken(peer, "its error report is malformed", e);
      }
    }
    String why = status.getDescription() == null ? "" : ": " + status.getDescription();
    Throwable cause = status.getCause();
    if (cause != null && cause.getMessage() != null && !why.contains(cause.getMessage())) {
      why += ": " + cause.getMessage();
    }
    if (status.getCode() == Status.Code.UNAVAILABLE) {
      FlightException tls = tls(peer, cause);
      if (tls != null) {
        return tls;
      }
      if (why.contains(CLOSED)) {
        why += " (it may want TLS, or a client's certificate: spark.shuffle.flight.tls.*)";
      }
    }
    return switch (status.getCode()) {
      case UNIMPLEMENTED ->
          new FlightException(
              peer + " answers gRPC, but not as a Flight Shuffle endpoint" + why
                  + " (spark.shuffle.flight.server takes the control address of `flight-shuffle server`)",
              null, false, cause);
      case UNAVAILABLE, DEADLINE_EXCEEDED ->
          new FlightException(peer + " cannot be reached: " + status.getCode() + why, null, true, cause);
      case INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, UNAUTHENTICATED, PERMISSION_DENIED ->
          new FlightException(peer + ": " + status.getCode() + why, null, false, cause);
      default -> new FlightException(peer + ": " + status.getCode() + why, null, true, cause);
    };
  }

  /** What trying again does not mend: a certificate that is not trusted, a server without TLS. Null for all else. */
  private static FlightException tls(String peer, Throwable cause) {
    for (Throwable each = cause; each != null; each = each.getCause()) {
      if (each instanceof GeneralSecurityException) {
        return new FlightException(
            peer + ": its certificate is not trusted: " + each.getMessage()
                + " (spark.shuffle.flight.tls.ca must hold the certificate of who signed the server's, and the server's"
                + " must name its host)",
            null, false, cause);
      }
      if (each instanceof NotSslRecordException) {
        return new FlightException(
            peer + " does not speak TLS (start it with --tls-cert and --tls-key, or leave out spark.shuffle.flight.tls.ca)",
            null, false, cause);
      }
    }
    return null;
  }

  /** A stream that broke its own rules: ended early, or said something impossible. */
  public static FlightException broken(String peer, String what, Throwable cause) {
    return new FlightException(peer + ": " + what, null, true, cause);
  }

  /** An error that this side found, in the protocol's words. */
  public static FlightException found(String peer, ErrorCode code, String what) {
    return new FlightException(peer + ": " + code + ": " + what, code, false, null);
  }

  public ErrorCode code() {
    return code;
  }

  /** With {@code WRONG_MASTER}, the addresses of the masters that answer, with commas between them. */
  String masters() {
    return masters;
  }

  /** Whether the server has no such application, which may register again. */
  public boolean appIsGone() {
    return code != null && NO_APP.contains(code);
  }

  /** Whether the server has no such shuffle, or not in this generation: it has to be registered again, and written. */
  public boolean shuffleIsGone() {
    return code == ErrorCode.UNKNOWN_SHUFFLE || appIsGone();
  }

  /** Whether it concerns one application, or room for its data, and not the way in which the worker was asked. */
  public boolean concernsData() {
    return code != null && OF_THE_DATA.contains(code);
  }

  /** Whether the same request may succeed a little later: the peer restarts, is full, or the connection broke. */
  public boolean passing() {
    return passing;
  }
}
