package org.apache.spark.shuffle.flight;

import java.io.DataInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** The names in the constant pool of a class file (JVM specification, 4.4). */
final class ConstantPool {
  private static final int MAGIC = 0xCAFEBABE;
  private static final int UTF8 = 1;
  private static final int LONG = 5;
  private static final int DOUBLE = 6;
  private static final int CLASS = 7;
  private static final int FIELD = 9;
  private static final int METHOD = 10;
  private static final int INTERFACE_METHOD = 11;
  private static final int NAME_AND_TYPE = 12;

  /** What {@link #members} is given: a field or method that the class refers to. */
  @FunctionalInterface
  interface Use {
    void of(String owner, String name, String descriptor);
  }

  /** Of an entry its text, or the indices of two others. */
  private record Entry(int tag, String text, int first, int second) {}

  private final Entry[] entries;

  private ConstantPool(Entry[] entries) {
    this.entries = entries;
  }

  static ConstantPool read(DataInputStream in) throws IOException {
    if (in.readInt() != MAGIC) {
      throw new IOException("not a class file");
    }
    in.readInt(); // version
    Entry[] entries = new Entry[in.readUnsignedShort()];
    for (int i = 1; i < entries.length; i++) {
      entries[i] = entry(in);
      if (entries[i].tag() == LONG || entries[i].tag() == DOUBLE) {
        i++; // takes two places
      }
    }
    return new ConstantPool(entries);
  }

  private static Entry entry(DataInputStream in) throws IOException {
    int tag = in.readUnsignedByte();
    return switch (tag) {
      case UTF8 -> new Entry(tag, in.readUTF(), 0, 0);
      case LONG, DOUBLE -> {
        in.readLong();
        yield new Entry(tag, "", 0, 0);
      }
      case CLASS, 8, 16, 19, 20 -> new Entry(tag, "", in.readUnsignedShort(), 0);
      case 15 -> new Entry(tag, "", in.readUnsignedByte(), in.readUnsignedShort());
      case 3, 4, FIELD, METHOD, INTERFACE_METHOD, NAME_AND_TYPE, 17, 18 ->
          new Entry(tag, "", in.readUnsignedShort(), in.readUnsignedShort());
      default -> throw new IOException("tag " + tag + " in a constant pool");
    };
  }

  /** The classes it names, with slashes. */
  List<String> classes() {
    List<String> found = new ArrayList<>();
    for (Entry entry : entries) {
      if (entry != null && entry.tag() == CLASS) {
        found.add(text(entry.first()));
      }
    }
    return found;
  }

  /** Shows {@code use} each field and method that it names. */
  void members(Use use) {
    for (Entry entry : entries) {
      if (entry != null && (entry.tag() == FIELD || entry.tag() == METHOD || entry.tag() == INTERFACE_METHOD)) {
        Entry named = entries[entry.second()];
        use.of(text(entries[entry.first()].first()), text(named.first()), text(named.second()));
      }
    }
  }

  private String text(int index) {
    return entries[index].text();
  }
}
