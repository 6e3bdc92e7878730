package org.apache.spark.shuffle.flight.version;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/**
 * Whether the running Spark has what our classes use of it. The JVM resolves a method when it is first called; this resolves
 * all of them at once, from the files of the classes that can be reached.
 */
final class SparkLinks {
  private static final String OURS = "org/apache/spark/shuffle/flight/";
  private static final String SHADED = OURS + "shaded/";
  private static final List<String> THEIRS = List.of("org/apache/spark/", "scala/", "org/apache/arrow/");

  private final ClassLoader loader;
  private final Map<String, Optional<ClassFile>> files = new HashMap<>();
  private final Deque<String> open = new ArrayDeque<>();
  private final Set<String> seen = new HashSet<>();
  private final Set<String> missing = new TreeSet<>();

  private SparkLinks(ClassLoader loader) {
    this.loader = loader;
  }

  /** What the classes that {@code roots} reach use of Spark and Spark has not; sorted. */
  static List<String> missing(ClassLoader loader, Class<?>... roots) {
    SparkLinks links = new SparkLinks(loader);
    for (Class<?> root : roots) {
      links.reach(root.getName().replace('.', '/'));
    }
    while (!links.open.isEmpty()) {
      links.file(links.open.poll()).ifPresent(links::check);
    }
    return List.copyOf(links.missing);
  }

  private void reach(String type) {
    if (type.startsWith(OURS) && !type.startsWith(SHADED) && seen.add(type)) {
      open.add(type);
    }
  }

  private void check(ClassFile ours) {
    ours.classes().forEach(this::reach);
    ours.members(this::resolve);
    if (!ours.isAbstract()) {
      Map<String, Boolean> members = new HashMap<>();
      collect(ours.name(), members);
      members.forEach((member, isAbstract) -> {
        if (isAbstract) {
          missing.add(named(ours.name(), member) + " (to be implemented)");
        }
      });
    }
  }

  private void resolve(String owner, String name, String descriptor) {
    boolean theirs = !owner.startsWith(OURS) && THEIRS.stream().anyMatch(owner::startsWith);
    if (theirs && !has(owner, name + descriptor)) {
      missing.add(named(owner, name + descriptor));
    }
  }

  private static String named(String owner, String member) {
    return owner.replace('/', '.') + "." + member;
  }

  /** Looks where the JVM does: in the class, in those above it, in its interfaces. */
  private boolean has(String owner, String member) {
    Optional<ClassFile> file = file(owner);
    return file.isPresent()
        && (file.get().declared().containsKey(member)
            || file.get().parents().stream().anyMatch(parent -> has(parent, member)));
  }

  /** All members of a type and those above it, and whether nothing implements them. */
  private void collect(String type, Map<String, Boolean> members) {
    file(type).ifPresent(
        file -> {
          file.declared().forEach((member, isAbstract) -> members.merge(member, isAbstract, Boolean::logicalAnd));
          file.parents().forEach(parent -> collect(parent, members));
        });
  }

  private Optional<ClassFile> file(String type) {
    return files.computeIfAbsent(type, this::read);
  }

  private Optional<ClassFile> read(String type) {
    try (InputStream in = loader.getResourceAsStream(type + ".class")) {
      return in == null
          ? Optional.empty()
          : Optional.of(ClassFile.read(new DataInputStream(new ByteArrayInputStream(in.readAllBytes()))));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
