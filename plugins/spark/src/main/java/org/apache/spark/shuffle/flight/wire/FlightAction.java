package org.apache.spark.shuffle.flight.wire;

/** What {@code DoAction} sends: which action, and its request. */
public record FlightAction(String type, byte[] body) {}
