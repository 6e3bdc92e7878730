"""Channels over Arrow Flight's DoExchange: blocks both ways within byte credits, many channels to a connection.

with ExchangeEndpoint("grpc+tcp://127.0.0.1:0", handler, BufferPool(64 << 20)) as endpoint:
    with ExchangeClient(f"127.0.0.1:{endpoint.port}", BufferPool(64 << 20)) as client:
        with client.open("numbers") as channel:
            channel.send(rows, payload, timeout=10)
            channel.half_close(timeout=10)
            assert channel.receive(timeout=10) is None
"""

from shuffle_transport.channels.channel import BlockChannel
from shuffle_transport.channels.client import ExchangeClient
from shuffle_transport.channels.options import ChannelOptions
from shuffle_transport.channels.receiver import Control, ReceivedBatch
from shuffle_transport.channels.relay_listener import RelayListener
from shuffle_transport.channels.server import ExchangeEndpoint, ExchangeService, Handler
from shuffle_transport.channels.statistics import BlockChannelStatistics, ExchangeStatistics

__all__ = [
    "BlockChannel",
    "BlockChannelStatistics",
    "ChannelOptions",
    "Control",
    "ExchangeClient",
    "ExchangeEndpoint",
    "ExchangeService",
    "ExchangeStatistics",
    "Handler",
    "ReceivedBatch",
    "RelayListener",
]
