package org.apache.spark.shuffle.flight.version;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.apache.spark.shuffle.checksum.RowBasedChecksum;
import org.apache.spark.shuffle.checksum.RowBasedChecksum$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRowChecksum;
import org.apache.spark.unsafe.Platform;
import org.junit.jupiter.api.Test;

class RowChecksumsTest {
  private static final int PARTITIONS = 3;

  private static UnsafeRow row(int value) {
    UnsafeRow row = new UnsafeRow(1);
    row.pointTo(new byte[16], Platform.BYTE_ARRAY_OFFSET, 16);
    row.setInt(0, value);
    return row;
  }

  private static long sum(RowBasedChecksum[] checksums) {
    for (int i = 0; i < 10; i++) {
      checksums[i % PARTITIONS].update(i, row(i));
    }
    return RowBasedChecksum$.MODULE$.getAggregatedChecksumValue(checksums);
  }

  @Test
  void thoseOfRowsAreOmittedAndMadeAnew() {
    RowBasedChecksum[] checksums = UnsafeRowChecksum.createUnsafeRowChecksums(PARTITIONS);
    Spark41.omit(checksums);
    assertArrayEquals(new RowBasedChecksum[PARTITIONS], checksums);
    assertEquals(sum(UnsafeRowChecksum.createUnsafeRowChecksums(PARTITIONS)), sum(Spark41.whole(checksums)));
    Spark41.restore(checksums);
    assertEquals(sum(UnsafeRowChecksum.createUnsafeRowChecksums(PARTITIONS)), sum(checksums));
  }

  @Test
  void othersStay() {
    RowBasedChecksum[] own = {new UnsafeRowChecksum(), new Own(), new Own()};
    RowBasedChecksum[] before = own.clone();
    Spark41.omit(own);
    Spark41.restore(own);
    assertArrayEquals(before, own);
    assertSame(own, Spark41.whole(own));
  }

  @Test
  void noneStayNone() {
    RowBasedChecksum[] none = {};
    Spark41.omit(none);
    Spark41.restore(none);
    assertSame(none, Spark41.whole(none));
  }

  /** Like one that an engine on top of Spark brings with it. */
  private static final class Own extends RowBasedChecksum {
    @Override
    public long calculateRowChecksum(Object key, Object value) {
      return 1;
    }
  }
}
