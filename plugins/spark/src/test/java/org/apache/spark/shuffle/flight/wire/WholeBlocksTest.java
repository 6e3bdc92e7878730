package org.apache.spark.shuffle.flight.wire;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import java.io.IOException;
import java.util.List;
import java.util.function.Consumer;
import org.apache.spark.shuffle.flight.proto.WholeGet;
import org.junit.jupiter.api.Test;

class WholeBlocksTest {
  private static final List<Pulls.Served> SERVED =
      List.of(
          new Pulls.Served(70_000_000_000L, 2, "hello".getBytes(UTF_8)),
          new Pulls.Served(8, 300, new byte[0]),
          new Pulls.Served(8, 300, "there".getBytes(UTF_8), 5));

  private static WholeGet answer(Consumer<WholeGet.Builder> change) {
    WholeGet.Builder answer = Pulls.whole(SERVED).toBuilder();
    change.accept(answer);
    return answer.build();
  }

  private static void refuses(Consumer<WholeGet.Builder> change) {
    assertThrows(IOException.class, () -> WholeBlocks.of(answer(change)));
  }

  @Test
  void blocksAreThoseThatWereServed() throws Exception {
    WholeBlocks blocks = WholeBlocks.of(WholeBlocks.parse(Pulls.whole(SERVED).toByteArray()));
    assertEquals(SERVED.size(), blocks.rows());
    for (int row = 0; row < blocks.rows(); row++) {
      Pulls.Served served = SERVED.get(row);
      byte[] payload = new byte[blocks.length(row)];
      blocks.body().getBytes(blocks.offset(row), payload);
      assertEquals(new String(served.payload(), UTF_8), new String(payload, UTF_8));
      assertEquals(served.map(), blocks.map(row));
      assertEquals(served.partition(), blocks.partition(row));
      assertEquals(served.checksum(), blocks.checksum(row));
      assertEquals(served.payload().length, blocks.rawLength(row));
      assertEquals(1, blocks.records(row));
    }
    assertTrue(blocks.intact(0));
    assertTrue(blocks.intact(1));
    assertFalse(blocks.intact(2));
  }

  @Test
  void answerWithoutBlocksHasNone() throws Exception {
    assertEquals(0, WholeBlocks.of(WholeGet.getDefaultInstance()).rows());
  }

  @Test
  void sizesThatDoNotAgreeAreRefused() {
    refuses(answer -> answer.setPayload(ByteString.copyFromUtf8("hellothere!")));
    refuses(answer -> answer.setPayload(ByteString.copyFromUtf8("hellother")));
    refuses(answer -> answer.setMaps(answer.getMaps().substring(8)));
    refuses(answer -> answer.setAttempts(answer.getAttempts().substring(1)));
    refuses(answer -> answer.setTable(answer.getTable().substring(1)));
    BlockTable negative = new BlockTable();
    negative.add(2, 0, -1, 0, 0);
    negative.add(2, 0, 11, 11, 0);
    negative.add(2, 0, 0, 0, 0);
    refuses(answer -> answer.setTable(negative.toByteString()));
    BlockTable vast = new BlockTable();
    vast.add(2, 0, Long.MAX_VALUE, Long.MAX_VALUE, 0);
    vast.add(2, 0, Long.MAX_VALUE, Long.MAX_VALUE, 0);
    vast.add(2, 0, 12, 12, 0);
    refuses(answer -> answer.setTable(vast.toByteString()));
  }

  @Test
  void whatIsNoAnswerIsRefused() {
    byte[] whole = Pulls.whole(SERVED).toByteArray();
    byte[] cut = java.util.Arrays.copyOf(whole, whole.length - 1);
    assertThrows(InvalidProtocolBufferException.class, () -> WholeBlocks.parse(cut));
  }
}
