"""Programs that begin to use the transport, by what they use; for tests of what that does to a process."""

POOL = "from shuffle_transport.pool import BufferPool; pool = BufferPool(1 << 24)"
USERS = {
    "push and pull": """
from shuffle_transport.flight_client import FlightClient
user = FlightClient("127.0.0.1:9")
""",
    "channels": f"""{POOL}
from shuffle_transport.channels import ExchangeClient
user = ExchangeClient("127.0.0.1:9", pool)
""",
    "channels' server": f"""{POOL}
from shuffle_transport.channels import ExchangeEndpoint
user = ExchangeEndpoint("grpc+tcp://127.0.0.1:0", print, pool)
""",
}
