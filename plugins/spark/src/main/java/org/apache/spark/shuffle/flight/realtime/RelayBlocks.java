package org.apache.spark.shuffle.flight.realtime;

import java.nio.ByteBuffer;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.flight.conf.FlightConf;
import org.apache.spark.shuffle.flight.rows.ColumnPacker;
import org.apache.spark.shuffle.flight.rows.RowBlockWriter;
import org.apache.spark.shuffle.flight.rows.RowCodec;
import org.apache.spark.shuffle.flight.rows.RowHeader;
import org.apache.spark.shuffle.flight.wire.BlockBatch;

/**
 * Makes the blocks of a relay from buffers of rows (plugins/spark/rows.md): packed by column, and compressed as well where
 * blocks wait to be sent. Rows stay as they are where that makes them no shorter. One thread at a time.
 */
final class RelayBlocks implements AutoCloseable {
  private final ColumnPacker packer; // null: rows are not packed
  private final RowBlockWriter compressing; // null: the application's codec is none of ours
  private final ByteBuffer header = ByteBuffer.allocate(RowHeader.PACKED_BYTES);

  /**
   * @param fields of a row
   * @param spark names the codec, as for any other shuffle
   */
  RelayBlocks(int fields, FlightConf conf, SparkConf spark) {
    packer = conf.packRows() ? new ColumnPacker(ColumnPacker.words(fields)) : null;
    RowCodec plain = RowCodec.of(spark);
    compressing = plain == null ? null : new RowBlockWriter(plain, RowCodec.of(spark), packer);
  }

  /**
   * Adds the first {@code length} bytes of {@code rows} to the open block of {@code batch}, in no more bytes.
   *
   * @param compress whether bytes on the wire cost more than the time to save some
   */
  void append(BlockBatch batch, byte[] rows, int length, boolean compress) {
    if (!(compress && compressing != null ? compressed(batch, rows, length) : packed(batch, rows, length))) {
      batch.append(rows, 0, length);
    }
  }

  private boolean compressed(BlockBatch batch, byte[] rows, int length) {
    compressing.start(rows, length);
    compressing.make();
    if (compressing.headerLength() + compressing.size() >= length) {
      return false;
    }
    batch.append(compressing.header(), 0, compressing.headerLength());
    batch.append(compressing.bytes(), 0, compressing.size());
    return true;
  }

  private boolean packed(BlockBatch batch, byte[] rows, int length) {
    int packed = packer == null ? 0 : packer.pack(rows, length);
    if (packed <= 0 || RowHeader.PACKED_BYTES + packed >= length) {
      return false;
    }
    RowHeader.putPacked(header, RowCodec.STORED, packed, length, packed);
    batch.append(header.array(), 0, RowHeader.PACKED_BYTES);
    batch.append(packer.packed(), 0, packed);
    return true;
  }

  /** Frees what compressing has taken outside of the heap. */
  @Override
  public void close() {
    if (compressing != null) {
      compressing.close();
    }
  }
}
