package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Runs what standard input asks for, a line each: {@code put|get BATCH BLOCK COUNT}; answers with seconds and bytes. */
public final class Loop {
  /** One client. Both move {@code count} batches of {@code batch} payload bytes in blocks of {@code block} bytes. */
  public interface Client {
    /** Sends, and waits until the sink has all; returns the payload bytes. */
    long put(int batch, int block, int count) throws Exception;

    /** Receives and verifies; returns the payload bytes. */
    long get(int batch, int block, int count) throws Exception;
  }

  private Loop() {}

  public static void run(Client client) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    String line;
    while ((line = lines.readLine()) != null) {
      String[] words = line.split(" ");
      int batch = Integer.parseInt(words[1]);
      int block = Integer.parseInt(words[2]);
      int count = Integer.parseInt(words[3]);
      long started = System.nanoTime();
      long bytes = words[0].equals("put") ? client.put(batch, block, count) : client.get(batch, block, count);
      System.out.println((System.nanoTime() - started) / 1e9 + " " + bytes);
    }
  }

  /** What is sent: bytes that nobody can compress. */
  public static byte[] payload(int block) {
    byte[] data = new byte[block];
    new java.util.Random(1).nextBytes(data);
    return data;
  }
}
