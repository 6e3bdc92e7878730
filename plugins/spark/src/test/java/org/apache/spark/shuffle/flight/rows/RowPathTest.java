package org.apache.spark.shuffle.flight.rows;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.apache.spark.SparkConf;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.serializer.KryoSerializer;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.sql.execution.UnsafeRowSerializer;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RowPathTest {
  private static final int MEMORY = 128 << 20;
  private static final Serializer ROWS = new UnsafeRowSerializer(3, null);

  private static SparkConf conf(String... pairs) {
    SparkConf conf = new SparkConf(false);
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(pairs[i], pairs[i + 1]);
    }
    return conf;
  }

  @Test
  void buffersShrinkWithTheNumberOfPartitionsAndEndAt16KiB() {
    assertEquals(128 << 10, RowPath.of(ROWS, 1, conf(), MEMORY).bufferSize());
    assertEquals(128 << 10, RowPath.of(ROWS, 256, conf(), MEMORY).bufferSize());
    assertEquals(32 << 10, RowPath.of(ROWS, 1024, conf(), MEMORY).bufferSize());
    assertEquals(16 << 10, RowPath.of(ROWS, 2048, conf(), MEMORY).bufferSize());
    assertEquals(16 << 10, RowPath.of(ROWS, 8192, conf(), MEMORY).bufferSize());
    assertNull(RowPath.of(ROWS, 8193, conf(), MEMORY));
  }

  @Test
  void shortBuffersFitACacheTogetherAsLongAsTheyHave16KiB() {
    assertEquals(128 << 10, RowPath.of(ROWS, 1, conf(), MEMORY).shortBuffer(1));
    assertEquals(128 << 10, RowPath.of(ROWS, 16, conf(), MEMORY).shortBuffer(16));
    assertEquals(32 << 10, RowPath.of(ROWS, 64, conf(), MEMORY).shortBuffer(64));
    assertEquals(16 << 10, RowPath.of(ROWS, 500, conf(), MEMORY).shortBuffer(500));
    assertEquals(20 << 10, RowPath.of(ROWS, 8, conf(), 160 << 10).shortBuffer(8), "no more than a buffer");
  }

  @Test
  void buffersStayWithinTheMemoryOfATask() {
    assertEquals(20 << 10, RowPath.of(ROWS, 8, conf(), 160 << 10).bufferSize());
    assertEquals(16 << 10, RowPath.of(ROWS, 8, conf(), 128 << 10).bufferSize());
    assertNull(RowPath.of(ROWS, 8, conf(), (128 << 10) - 1));
    assertNull(RowPath.of(ROWS, 1, conf(), 0));
  }

  @Test
  void onlyRowsAreRows() {
    assertNull(RowPath.of(new JavaSerializer(conf()), 8, conf(), MEMORY));
    assertNull(RowPath.of(new KryoSerializer(conf()), 8, conf(), MEMORY));
  }

  @ParameterizedTest
  @ValueSource(strings = {"lzf", "snappy"})
  void codecsThatRowsDoNotHaveGoToSparksWriters(String codec) {
    assertNull(RowPath.of(ROWS, 8, conf("spark.io.compression.codec", codec), MEMORY));
  }

  @ParameterizedTest
  @ValueSource(strings = {"lz4", "zstd"})
  void rowsAreCompressedWithTheLibrariesOfSparksCodecs(String codec) {
    assertNotNull(RowPath.of(ROWS, 8, conf("spark.io.compression.codec", codec), MEMORY));
  }

  @Test
  void rowsNeedNoCompression() {
    assertNotNull(RowPath.of(ROWS, 8, conf("spark.shuffle.compress", "false"), MEMORY));
  }

  @Test
  void encryptedRowsGoToSparksWriters() {
    assertNull(RowPath.of(ROWS, 8, conf("spark.io.encryption.enabled", "true"), MEMORY));
  }

  @Test
  void metricOfTheExchangeIsFound() {
    SQLMetric metric = new SQLMetric("size", 0);
    RowPath path = RowPath.of(new UnsafeRowSerializer(3, metric), 8, conf(), MEMORY);
    assertSame(metric, path.dataSize());
    path.addDataSize(7);
    assertEquals(7, metric.value());
    RowPath.of(ROWS, 8, conf(), MEMORY).addDataSize(7);
  }
}
