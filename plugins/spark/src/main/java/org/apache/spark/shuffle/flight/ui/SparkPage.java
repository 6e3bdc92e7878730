package org.apache.spark.shuffle.flight.ui;

import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import scala.Function0;
import scala.Option;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.xml.Node;
import scala.xml.Unparsed;

/** Spark's frame round a page: its header, and the tabs. */
final class SparkPage {
  private SparkPage() {}

  /**
   * The method has more parameters from version to version, all of them optional; so it is looked for by those that it must have.
   *
   * @param html nothing of it is escaped any more
   */
  @SuppressWarnings("unchecked")
  static Seq<Node> around(Class<?> servletRequest, Object request, SparkUITab tab, String html) {
    Function0<Seq<Node>> content = () -> List$.MODULE$.<Node>empty().$colon$colon(new Unparsed(html));
    try {
      Method header =
          Arrays.stream(UIUtils.class.getMethods())
              .filter(method -> method.getName().equals("headerSparkPage"))
              .filter(method -> method.getParameterTypes()[0] == servletRequest)
              .findFirst()
              .orElseThrow(() -> new NoSuchMethodException("UIUtils.headerSparkPage"));
      Object[] arguments =
          Arrays.stream(header.getParameterTypes())
              .map(type -> argument(type, request, tab, content))
              .toArray();
      return (Seq<Node>) header.invoke(null, arguments);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this Spark's UIUtils.headerSparkPage cannot be called", e);
    }
  }

  private static Object argument(Class<?> type, Object request, SparkUITab tab, Function0<Seq<Node>> content) {
    if (type == String.class) {
      return FlightTab.TITLE;
    } else if (type == Function0.class) {
      return content;
    } else if (type == SparkUITab.class) {
      return tab;
    } else if (type == Option.class) {
      return Option.empty();
    }
    return type == boolean.class ? (Object) false : request;
  }
}
