package org.apache.spark.shuffle.flight;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/**
 * Whether the running Spark has what our classes use of it. The JVM resolves a method when it is first called; this resolves
 * all of them at once, from the constant pools of the classes that can be reached.
 */
final class SparkLinks {
  private static final String OURS = "org/apache/spark/shuffle/flight/";
  private static final String SHADED = OURS + "shaded/";
  private static final List<String> THEIRS = List.of("org/apache/spark/", "scala/", "org/apache/arrow/");

  /** One entry of a constant pool that names a member of a class. */
  private record Member(String owner, String name, String descriptor) {
    boolean isField() {
      return !descriptor.startsWith("(");
    }

    @Override
    public String toString() {
      return owner.replace('/', '.') + "." + name + descriptor;
    }
  }

  private final ClassLoader loader;
  private final Deque<String> open = new ArrayDeque<>();
  private final Set<String> seen = new HashSet<>();
  private final Set<Member> asked = new HashSet<>();
  private final Set<String> missing = new TreeSet<>();

  private SparkLinks(ClassLoader loader) {
    this.loader = loader;
  }

  /** What the classes that {@code roots} reach use of Spark and Spark has not; sorted, in words. */
  static List<String> missing(ClassLoader loader, Class<?>... roots) {
    SparkLinks links = new SparkLinks(loader);
    for (Class<?> root : roots) {
      links.reach(root.getName().replace('.', '/'));
    }
    while (!links.open.isEmpty()) {
      links.look(links.open.poll());
    }
    return List.copyOf(links.missing);
  }

  private void reach(String type) {
    if (type.startsWith(OURS) && !type.startsWith(SHADED) && seen.add(type)) {
      open.add(type);
    }
  }

  private void look(String type) {
    try (InputStream in = loader.getResourceAsStream(type + ".class")) {
      if (in == null) {
        return; // of a variant for another Spark
      }
      ConstantPool pool = ConstantPool.read(new DataInputStream(new ByteArrayInputStream(in.readAllBytes())));
      pool.classes().forEach(this::reach);
      pool.members(this::resolve);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    lookForAbstract(type);
  }

  private void lookForAbstract(String type) {
    try {
      Class<?> ours = load(type);
      if (!Modifier.isAbstract(ours.getModifiers())) {
        Arrays.stream(ours.getMethods())
            .filter(method -> Modifier.isAbstract(method.getModifiers()))
            .forEach(method -> missing.add(ours.getName() + " does not implement " + method));
      }
    } catch (ClassNotFoundException | LinkageError e) {
      missing.add(type.replace('/', '.') + " (" + e + ")");
    }
  }

  private void resolve(String owner, String name, String descriptor) {
    Member member = new Member(owner, name, descriptor);
    boolean theirs = THEIRS.stream().anyMatch(owner::startsWith) && !owner.startsWith(OURS);
    if (theirs && asked.add(member)) {
      try {
        if (!has(load(owner), member)) {
          missing.add(member.toString());
        }
      } catch (ClassNotFoundException | LinkageError e) {
        missing.add(member + " (" + e + ")");
      }
    }
  }

  private Class<?> load(String type) throws ClassNotFoundException {
    return Class.forName(type.replace('/', '.'), false, loader);
  }

  /** Looks where the JVM does: in the class, in those above it, in its interfaces. */
  private static boolean has(Class<?> owner, Member member) {
    if (owner == null) {
      return false;
    }
    if (declares(owner, member) || (owner.isInterface() && declares(Object.class, member))) {
      return true;
    }
    return has(owner.getSuperclass(), member) || Stream.of(owner.getInterfaces()).anyMatch(each -> has(each, member));
  }

  private static boolean declares(Class<?> type, Member member) {
    if (member.isField()) {
      return Stream.of(type.getDeclaredFields()).anyMatch(field -> matches(field, member));
    }
    if (member.name().equals("<init>")) {
      return Stream.of(type.getDeclaredConstructors()).anyMatch(each -> matches(each, member));
    }
    return Stream.of(type.getDeclaredMethods()).anyMatch(method -> matches(method, member));
  }

  private static boolean matches(Field field, Member member) {
    return field.getName().equals(member.name()) && field.getType().descriptorString().equals(member.descriptor());
  }

  private static boolean matches(Constructor<?> constructor, Member member) {
    return MethodType.methodType(void.class, constructor.getParameterTypes()).descriptorString().equals(member.descriptor());
  }

  private static boolean matches(Method method, Member member) {
    return method.getName().equals(member.name())
        && MethodType.methodType(method.getReturnType(), method.getParameterTypes())
            .descriptorString()
            .equals(member.descriptor());
  }
}
