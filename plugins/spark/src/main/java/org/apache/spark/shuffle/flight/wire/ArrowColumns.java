package org.apache.spark.shuffle.flight.wire;

import com.google.flatbuffers.FlatBufferBuilder;
import java.util.List;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.Endianness;
import org.apache.arrow.flatbuf.Field;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Int;
import org.apache.arrow.flatbuf.LargeBinary;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.MetadataVersion;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.flatbuf.Schema;
import org.apache.arrow.flatbuf.Type;

/**
 * The columns of push and pull batches and their Arrow IPC headers, written with the flatbuffers classes that Spark
 * carries (arrow-format). No arrow-vector: a shuffle batch has seven flat columns, and needs no allocator.
 */
final class ArrowColumns {
  /** One integer column. */
  record Column(String name, int bytes, boolean signed) {}

  /** The integer columns of a push; {@code payload: large_binary} follows them. */
  static final List<Column> PUT =
      List.of(
          new Column("partition", 4, true),
          new Column("crc32c", 4, false),
          new Column("raw_length", 8, true),
          new Column("records", 8, true));

  /** The integer columns of a pull; {@code payload: large_binary} follows them. */
  static final List<Column> GET =
      List.of(
          new Column("map", 8, true),
          new Column("attempt", 8, true),
          new Column("partition", 4, true),
          new Column("crc32c", 4, false),
          new Column("raw_length", 8, true),
          new Column("records", 8, true));

  private ArrowColumns() {}

  /** The IPC message of the schema: {@code columns} and the payload, none of them nullable. */
  static byte[] schemaHeader(List<Column> columns) {
    FlatBufferBuilder builder = new FlatBufferBuilder(1024);
    int[] fields = new int[columns.size() + 1];
    for (int i = 0; i < columns.size(); i++) {
      Column column = columns.get(i);
      int type = Int.createInt(builder, column.bytes() * 8, column.signed());
      fields[i] = field(builder, column.name(), Type.Int, type);
    }
    LargeBinary.startLargeBinary(builder);
    fields[columns.size()] = field(builder, "payload", Type.LargeBinary, LargeBinary.endLargeBinary(builder));
    int fieldVector = Schema.createFieldsVector(builder, fields);
    Schema.startSchema(builder);
    Schema.addEndianness(builder, Endianness.Little);
    Schema.addFields(builder, fieldVector);
    return message(builder, MessageHeader.Schema, Schema.endSchema(builder), 0);
  }

  /**
   * The IPC message of a record batch without nulls.
   *
   * @param rows rows of the batch
   * @param buffers offset and length of every buffer in the body, two numbers each, a column's (empty) validity first
   */
  static byte[] batchHeader(int rows, int columns, long[] buffers, long bodyLength) {
    FlatBufferBuilder builder = new FlatBufferBuilder(768);
    RecordBatch.startNodesVector(builder, columns);
    for (int i = 0; i < columns; i++) {
      FieldNode.createFieldNode(builder, rows, 0);
    }
    int nodes = builder.endVector();
    RecordBatch.startBuffersVector(builder, buffers.length / 2);
    for (int i = buffers.length - 2; i >= 0; i -= 2) {
      Buffer.createBuffer(builder, buffers[i], buffers[i + 1]);
    }
    int bufferVector = builder.endVector();
    RecordBatch.startRecordBatch(builder);
    RecordBatch.addLength(builder, rows);
    RecordBatch.addNodes(builder, nodes);
    RecordBatch.addBuffers(builder, bufferVector);
    return message(builder, MessageHeader.RecordBatch, RecordBatch.endRecordBatch(builder), bodyLength);
  }

  private static int field(FlatBufferBuilder builder, String name, byte typeType, int type) {
    int nameOffset = builder.createString(name);
    int children = Field.createChildrenVector(builder, new int[0]);
    Field.startField(builder);
    Field.addName(builder, nameOffset);
    Field.addNullable(builder, false);
    Field.addTypeType(builder, typeType);
    Field.addType(builder, type);
    Field.addChildren(builder, children);
    return Field.endField(builder);
  }

  private static byte[] message(FlatBufferBuilder builder, byte type, int header, long bodyLength) {
    Message.startMessage(builder);
    Message.addVersion(builder, MetadataVersion.V5);
    Message.addHeaderType(builder, type);
    Message.addHeader(builder, header);
    Message.addBodyLength(builder, bodyLength);
    builder.finish(Message.endMessage(builder));
    return builder.sizedByteArray();
  }
}
