package org.apache.spark.shuffle.flight.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

class SendWindowTest {
  private static final long MIB = 1 << 20;

  @Test
  void beginsWithTheInitialCredit() {
    SendWindow window = SendWindow.initial();
    assertTrue(window.admits(MIB));
    assertEquals(MIB, window.available());
  }

  @Test
  void admitsUpToWhatIsGrantedAndNoByteMore() {
    SendWindow window = SendWindow.initial().afterGrant(4 * MIB).afterSending(3 * MIB);
    assertTrue(window.admits(MIB));
    assertFalse(window.admits(MIB + 1));
  }

  @Test
  void messageLargerThanTheWindowPassesAtTheStart() {
    assertTrue(SendWindow.initial().admits(64 * MIB));
  }

  @Test
  void messageLargerThanTheWindowPassesOnlyWhenNothingIsOutstanding() {
    SendWindow window = SendWindow.initial().afterGrant(4 * MIB).afterSending(1);
    assertFalse(window.admits(5 * MIB));
    assertTrue(window.afterGrant(4 * MIB + 1).admits(5 * MIB));
  }

  @Test
  void messageThatFitsTheWindowDoesNotOverdrawIt() {
    SendWindow window = SendWindow.initial().afterGrant(4 * MIB).afterSending(2 * MIB);
    assertFalse(window.admits(4 * MIB));
  }

  @Test
  void overdraftIsPaidBackBeforeTheNextMessage() {
    SendWindow window = SendWindow.initial().afterSending(10 * MIB);
    assertFalse(window.admits(1));
    assertFalse(window.afterGrant(10 * MIB).admits(1));
    assertTrue(window.afterGrant(11 * MIB).admits(MIB));
  }

  @Test
  void lateGrantChangesNothing() {
    SendWindow window = SendWindow.initial().afterGrant(8 * MIB);
    assertEquals(window, window.afterGrant(2 * MIB));
  }

  @Test
  void windowIsTheLargestCreditSeen() {
    SendWindow window = SendWindow.initial().afterGrant(8 * MIB).afterSending(8 * MIB).afterGrant(10 * MIB);
    assertEquals(8 * MIB, window.window());
    assertEquals(2 * MIB, window.available());
  }

  @Test
  void sentBytesThatOverflowAreRefused() {
    SendWindow window = SendWindow.initial().afterSending(Long.MAX_VALUE);
    assertThrows(ArithmeticException.class, () -> window.afterSending(1));
  }

  /** Against a receiver that takes everything and grants it again, no sequence of messages gets stuck or overdraws. */
  @Test
  void noSequenceOfMessagesDeadlocksOrOverdraws() {
    Random random = new Random(7);
    for (int run = 0; run < 200; run++) {
      long size = 1 + random.nextInt(4 << 20);
      SendWindow window = SendWindow.initial();
      for (int message = 0; message < 50; message++) {
        long bytes = 1 + random.nextInt(6 << 20);
        if (!window.admits(bytes)) {
          window = window.afterGrant(Math.max(window.granted(), window.sent() + Math.max(size, window.window())));
        }
        assertTrue(window.admits(bytes), window + " does not admit " + bytes);
        boolean alone = bytes > window.window();
        assertTrue(alone || bytes <= window.available());
        window = window.afterSending(bytes);
      }
    }
  }
}
