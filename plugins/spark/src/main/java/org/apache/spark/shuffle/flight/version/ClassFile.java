package org.apache.spark.shuffle.flight.version;

import java.io.DataInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What a class file says of a class (JVM specification, 4), read without loading the class. */
final class ClassFile {
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

  private static final int ABSTRACT = 0x0400;

  private final Entry[] entries;
  private final int access;
  private final String name;
  private final List<String> parents = new ArrayList<>();
  private final Map<String, Boolean> declared = new HashMap<>();

  private ClassFile(Entry[] entries, DataInputStream in) throws IOException {
    this.entries = entries;
    this.access = in.readUnsignedShort();
    this.name = type(in.readUnsignedShort());
    int superclass = in.readUnsignedShort();
    if (superclass != 0) {
      parents.add(type(superclass));
    }
    for (int interfaces = in.readUnsignedShort(); interfaces > 0; interfaces--) {
      parents.add(type(in.readUnsignedShort()));
    }
    readMembers(in); // fields
    readMembers(in); // methods
  }

  private void readMembers(DataInputStream in) throws IOException {
    for (int left = in.readUnsignedShort(); left > 0; left--) {
      boolean isAbstract = (in.readUnsignedShort() & ABSTRACT) != 0;
      declared.put(text(in.readUnsignedShort()) + text(in.readUnsignedShort()), isAbstract);
      for (int attributes = in.readUnsignedShort(); attributes > 0; attributes--) {
        in.readUnsignedShort();
        in.skipNBytes(in.readInt());
      }
    }
  }

  /** With slashes. */
  String name() {
    return name;
  }

  boolean isAbstract() {
    return (access & ABSTRACT) != 0;
  }

  /** Its superclass, if any, then its interfaces. */
  List<String> parents() {
    return parents;
  }

  /** Each field and method, its name and descriptor in one text, and whether it is abstract. */
  Map<String, Boolean> declared() {
    return declared;
  }

  static ClassFile read(DataInputStream in) throws IOException {
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
    return new ClassFile(entries, in);
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
        use.of(type(entry.first()), text(named.first()), text(named.second()));
      }
    }
  }

  private String type(int index) {
    return text(entries[index].first());
  }

  private String text(int index) {
    return entries[index].text();
  }
}
