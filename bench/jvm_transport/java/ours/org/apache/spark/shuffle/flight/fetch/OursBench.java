package org.apache.spark.shuffle.flight.fetch;

import bench.Loop;
import io.netty.buffer.ByteBuf;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.shuffle.flight.blocks.WantedBlock;
import org.apache.spark.shuffle.flight.client.Connections;
import org.apache.spark.shuffle.flight.client.Credentials;
import org.apache.spark.shuffle.flight.client.FlightException;
import org.apache.spark.shuffle.flight.client.HostPort;
import org.apache.spark.shuffle.flight.client.WorkerAddress;
import org.apache.spark.shuffle.flight.proto.Committed;
import org.apache.spark.shuffle.flight.proto.GetTicket;
import org.apache.spark.shuffle.flight.proto.MapAttempt;
import org.apache.spark.shuffle.flight.proto.PutCommand;
import org.apache.spark.shuffle.flight.proto.ShuffleKey;
import org.apache.spark.shuffle.flight.push.PutStream;
import org.apache.spark.shuffle.flight.wire.BlockBatch;
import org.apache.spark.shuffle.flight.wire.BlockTotals;

/** The classes a map task pushes with and a reduce task pulls with, without Spark around them. */
public final class OursBench implements Loop.Client {
  private static final Duration TIMEOUT = Duration.ofSeconds(60);

  private final Connections connections;
  private final WorkerAddress worker;

  private OursBench(int port) {
    List<HostPort> servers = List.of(new HostPort("127.0.0.1", port));
    connections = new Connections(servers, TIMEOUT, "bench", new Credentials(null, null, null));
    worker = new WorkerAddress("bench", "127.0.0.1", port);
  }

  public static void main(String[] arguments) throws Exception {
    Loop.run(new OursBench(Integer.parseInt(arguments[0])));
    System.exit(0);
  }

  @Override
  public long put(int batchBytes, int block, int count) throws Exception {
    byte[] data = Loop.payload(block);
    BlockBatch batch = new BlockBatch(batchBytes);
    BlockTotals totals = new BlockTotals();
    PutCommand.Builder command =
        PutCommand.newBuilder()
            .setShuffle(ShuffleKey.newBuilder().setApp("bench"))
            .setOutput(MapAttempt.getDefaultInstance())
            .setPartitions(batchBytes / block)
            .setCodec("none");
    PutStream stream =
        PutStream.open(connections.channel(worker), worker, command, TIMEOUT, TIMEOUT, () -> { });
    for (int i = 0; i < count; i++) {
      for (int partition = 0; batch.room() >= block; partition++) {
        batch.append(data, 0, block);
        batch.endBlock(partition, totals);
      }
      stream.send(batch, (long) (count - i - 1) * batchBytes);
      batch.clear();
    }
    Committed answer = stream.commit(totals.toMessage());
    return answer.getTotals().getBytes();
  }

  @Override
  public long get(int batchBytes, int block, int count) throws Exception {
    // One wanted block over all partitions; the source serves the same blocks again and again.
    List<WantedBlock> wanted = List.of(new WantedBlock("shuffle_0_0_0", 0, 0, batchBytes / block));
    Counter counter = new Counter();
    BlockAssembler blocks = new BlockAssembler("the source", wanted, () -> counter, outcome -> { });
    Pull pull =
        new Pull(
            connections.channel(worker), "the source", blocks, counter, TIMEOUT, connections.timer());
    String order = "bench-" + batchBytes + "-" + block + "-" + count;
    pull.start(GetTicket.newBuilder().setShuffle(ShuffleKey.newBuilder().setApp(order)).build());
    counter.over.get();
    return counter.bytes;
  }

  /** Counts what a reduce task would be handed; the assembler has verified it. */
  private static final class Counter implements BlockSink, Pull.Listener {
    final CompletableFuture<Void> over = new CompletableFuture<>();
    long bytes;

    @Override
    public void add(ByteBuf source, int offset, int length) {
      bytes += length;
    }

    @Override
    public ManagedBuffer finish() {
      return null;
    }

    @Override
    public void discard() {}

    @Override
    public void pulled() {
      over.complete(null);
    }

    @Override
    public void failed(FlightException failure) {
      over.completeExceptionally(failure);
    }
  }
}
