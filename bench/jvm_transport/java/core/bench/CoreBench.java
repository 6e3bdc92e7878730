package bench;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32C;
import org.apache.arrow.flight.AsyncPutListener;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.LargeVarBinaryVector;
import org.apache.arrow.vector.UInt4Vector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** The same blocks with Arrow's own client. {@code zero-copy} as the second argument turns on its zero-copy mode. */
public final class CoreBench implements Loop.Client {
  private static final int CHECKSUM = 3;
  private static final long POLL_NANOS = 20_000;
  private static final Schema PUT =
      new Schema(
          List.of(
              column("partition", new ArrowType.Int(32, true)),
              column("crc32c", new ArrowType.Int(32, false)),
              column("raw_length", new ArrowType.Int(64, true)),
              column("records", new ArrowType.Int(64, true)),
              column("payload", new ArrowType.LargeBinary())));

  private final BufferAllocator allocator = new RootAllocator();
  private final FlightClient client;
  private final boolean zeroCopy;

  private CoreBench(int port, boolean zeroCopy) {
    this.client = FlightClient.builder(allocator, Location.forGrpcInsecure("127.0.0.1", port)).build();
    this.zeroCopy = zeroCopy;
  }

  public static void main(String[] arguments) throws Exception {
    Loop.run(new CoreBench(Integer.parseInt(arguments[0]), arguments[1].equals("zero-copy")));
    System.exit(0);
  }

  private static Field column(String name, ArrowType type) {
    return new Field(name, FieldType.notNullable(type), new ArrayList<>());
  }

  @Override
  public long put(int batchBytes, int block, int count) throws Exception {
    byte[] data = Loop.payload(block);
    int rows = batchBytes / block;
    CRC32C crc = new CRC32C();
    String[] answer = new String[1];
    AsyncPutListener replies =
        new AsyncPutListener() {
          @Override
          public void onNext(PutResult reply) {
            byte[] metadata = new byte[(int) reply.getApplicationMetadata().readableBytes()];
            reply.getApplicationMetadata().getBytes(0, metadata);
            answer[0] = new String(metadata, StandardCharsets.UTF_8);
          }
        };
    try (VectorSchemaRoot root = VectorSchemaRoot.create(PUT, allocator)) {
      FlightClient.ClientStreamListener stream =
          client.startPut(FlightDescriptor.command("core".getBytes(StandardCharsets.UTF_8)), root, replies);
      stream.setUseZeroCopy(zeroCopy);
      for (int i = 0; i < count; i++) {
        fill(root, data, rows, crc);
        while (!stream.isReady()) {
          LockSupport.parkNanos(POLL_NANOS); // a client cannot set a handler of its own for this
        }
        stream.putNext();
        if (zeroCopy) {
          root.clear(); // the buffers are gRPC's now, and its to release
        }
      }
      stream.completed();
      stream.getResult();
    }
    return Long.parseLong(answer[0]);
  }

  private static void fill(VectorSchemaRoot root, byte[] data, int rows, CRC32C crc) {
    IntVector partition = (IntVector) root.getVector(0);
    UInt4Vector checksum = (UInt4Vector) root.getVector(1);
    BigIntVector rawLength = (BigIntVector) root.getVector(2);
    BigIntVector records = (BigIntVector) root.getVector(3);
    LargeVarBinaryVector payload = (LargeVarBinaryVector) root.getVector(4);
    partition.allocateNew(rows);
    checksum.allocateNew(rows);
    rawLength.allocateNew(rows);
    records.allocateNew(rows);
    payload.allocateNew((long) rows * data.length, rows);
    for (int row = 0; row < rows; row++) {
      crc.reset();
      crc.update(data);
      partition.set(row, row);
      checksum.set(row, (int) crc.getValue());
      rawLength.set(row, data.length);
      records.set(row, 0);
      payload.set(row, data, 0, data.length);
    }
    root.setRowCount(rows);
  }

  @Override
  public long get(int batchBytes, int block, int count) throws Exception {
    String order = "core-" + batchBytes + "-" + block + "-" + count;
    long bytes = 0;
    CRC32C crc = new CRC32C();
    try (FlightStream stream = client.getStream(new Ticket(order.getBytes(StandardCharsets.UTF_8)))) {
      while (stream.next()) {
        VectorSchemaRoot root = stream.getRoot();
        UInt4Vector checksum = (UInt4Vector) root.getVector(CHECKSUM);
        LargeVarBinaryVector payload = (LargeVarBinaryVector) root.getVector(root.getFieldVectors().size() - 1);
        ArrowBuf data = payload.getDataBuffer();
        ArrowBuf offsets = payload.getOffsetBuffer();
        for (int row = 0; row < root.getRowCount(); row++) {
          long start = offsets.getLong(8L * row);
          int length = (int) (offsets.getLong(8L * (row + 1)) - start);
          crc.reset();
          crc.update(data.nioBuffer(start, length));
          if ((int) crc.getValue() != checksum.get(row)) {
            throw new IllegalStateException("checksum differs in row " + row);
          }
          bytes += length;
        }
      }
    }
    return bytes;
  }
}
