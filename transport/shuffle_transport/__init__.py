"""The transport of Flight Shuffle: credits, codecs, messages, and the Flight and gRPC ends of the wire."""
