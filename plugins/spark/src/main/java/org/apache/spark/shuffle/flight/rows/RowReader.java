package org.apache.spark.shuffle.flight.rows;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.BlockId;
import org.apache.spark.unsafe.Platform;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The rows that {@code FlightRowWriter} wrote: each buffer is expanded whole, and its rows are pointed to where they lie.
 *
 * <p>Spark promises that the row handed out last stays valid while it asks whether there is another: {@link RowBlockReader}
 * leaves the buffer before the last one as it is.
 */
public final class RowReader extends AbstractIterator<Product2<Object, Object>> {
  private static final int WORD_BYTES = 8;

  /** Told of a block that is not what its map wrote, or cannot be read to its end. */
  public interface Complaints {
    /** May throw what makes Spark run the map again. */
    void malformed(BlockId block, IOException why);
  }

  private final Iterator<Tuple2<BlockId, InputStream>> streams;
  private final Complaints complaints;
  private final int smallestRow;
  private final UnsafeRow row;
  private final Tuple2<Object, Object> entry;
  private final RowBlockReader buffers = new RowBlockReader();
  private BlockId block;
  private InputStream stream;
  private byte[] rows;
  private int at;
  private int end;

  /** @param streams of whole buffers, one behind the other; closed when they are used up */
  public RowReader(Iterator<Tuple2<BlockId, InputStream>> streams, int fields, Complaints complaints) {
    this.streams = streams;
    this.complaints = complaints;
    this.smallestRow = UnsafeRow.calculateBitSetWidthInBytes(fields) + WORD_BYTES * fields;
    this.row = new UnsafeRow(fields);
    this.entry = new Tuple2<>(0, row); // the partition is not told, as in UnsafeRowSerializer
  }

  @Override
  public boolean hasNext() {
    while (at == end) {
      if (stream == null) {
        if (!streams.hasNext()) {
          return false;
        }
        Tuple2<BlockId, InputStream> next = streams.next();
        block = next._1();
        stream = next._2();
      }
      try {
        if (!nextBuffer()) {
          stream.close();
          stream = null;
        }
      } catch (IOException e) {
        throw failure(e);
      }
    }
    return true;
  }

  private RuntimeException failure(IOException why) {
    complaints.malformed(block, why);
    return new UncheckedIOException(why);
  }

  private boolean nextBuffer() throws IOException {
    if (!buffers.next(stream)) {
      return false;
    }
    rows = buffers.rows();
    at = 0;
    end = buffers.length();
    return true;
  }

  @Override
  public Product2<Object, Object> next() {
    if (!hasNext()) {
      throw new NoSuchElementException("no more rows");
    }
    int left = end - at - RowFormat.LENGTH_BYTES;
    int size = left < 0 ? -1 : RowFormat.first(rows, at);
    if (size < smallestRow || size > left || size % WORD_BYTES != 0) {
      throw failure(RowCodec.malformed("a row of " + size + " bytes where " + left + " are left"));
    }
    row.pointTo(rows, Platform.BYTE_ARRAY_OFFSET + at + RowFormat.LENGTH_BYTES, size);
    at += RowFormat.LENGTH_BYTES + size;
    return entry;
  }
}
