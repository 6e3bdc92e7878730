package org.apache.spark.shuffle.flight.conf;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Arrays;
import java.util.Set;

/** Files with a secret: refused when strangers may read or replace them, and never quoted in an error. */
final class PrivateFile {
  private static final int SECRET_BYTES = 32;
  private static final Set<PosixFilePermission> STRANGERS =
      Set.of(
          PosixFilePermission.OTHERS_READ, PosixFilePermission.OTHERS_WRITE, PosixFilePermission.OTHERS_EXECUTE,
          PosixFilePermission.GROUP_WRITE);

  private PrivateFile() {}

  /** The cluster secret that makes tokens: the first line that is not empty, as docs/protocol.md has it. */
  static byte[] secret(Path path, String option) {
    byte[] bytes = read(path, option);
    int start = 0;
    while (start < bytes.length && endsLine(bytes[start])) {
      start++;
    }
    int end = start;
    while (end < bytes.length && !endsLine(bytes[end])) {
      end++;
    }
    if (end - start < SECRET_BYTES) {
      throw new IllegalArgumentException(
          option + "=" + path + ": " + (end - start) + " bytes are too few for a secret, it needs " + SECRET_BYTES
              + " on one line; give the very file of the server's --secret-file");
    }
    return Arrays.copyOfRange(bytes, start, end);
  }

  private static boolean endsLine(byte b) {
    return b == '\n' || b == '\r';
  }

  /** A token, without white space around it. */
  static String token(Path path, String option) {
    String token = new String(read(path, option), StandardCharsets.ISO_8859_1).strip();
    if (token.isEmpty() || !token.chars().allMatch(c -> c > ' ' && c < 127)) {
      throw new IllegalArgumentException(
          option + "=" + path + ": holds no token; flight-shuffle token --secret-file FILE --app APP prints one");
    }
    return token;
  }

  private static byte[] read(Path path, String option) {
    try {
      byte[] bytes = Files.readAllBytes(path);
      if (Files.getPosixFilePermissions(path).stream().anyMatch(STRANGERS::contains)) {
        throw new IllegalArgumentException(
            option + "=" + path + ": may be read or written by other users; chmod 600 " + path
                + ", and make a new one if somebody may have seen it");
      }
      return bytes;
    } catch (IOException e) {
      throw new IllegalArgumentException(
          option + "=" + path + ": cannot be read (" + e.getClass().getSimpleName()
              + "); it is wanted on the driver's machine, readable for the user of the driver", e);
    }
  }
}
