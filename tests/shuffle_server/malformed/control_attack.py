"""Requests to the control endpoint: random bytes, damaged messages, messages whose fields make no sense."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import grpc

from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.malformed.attack import APP, TIMEOUT, Attack, Target, Victims, check_control
from tests.shuffle_server.malformed.mutate import TEXTS, changed, damaged

_KEY = pb.ShuffleKey(app=APP, shuffle=0)
_DRIVER = pb.Driver(user="x", host="y", began=1.5)
REQUESTS: dict[str, Any] = {
    "Hello": pb.HelloRequest(protocol=1, client="x"),
    "RegisterApp": pb.RegisterAppRequest(app=APP, instance="one", name="x", driver=_DRIVER),
    "Heartbeat": pb.HeartbeatRequest(app=APP, driver=_DRIVER),
    "UnregisterApp": pb.UnregisterAppRequest(app="nobody"),
    "RegisterShuffle": pb.RegisterShuffleRequest(
        shuffle=pb.ShuffleKey(app=APP, shuffle=2**40), partitions=8, maps=4, codec="lz4", content="records"
    ),
    "UnregisterShuffle": pb.UnregisterShuffleRequest(shuffle=pb.ShuffleKey(app="nobody", shuffle=0)),
    "Locate": pb.LocateRequest(shuffle=_KEY, first_map=0, end_map=4, page=2),
    "ReportLost": pb.ReportLostRequest(shuffle=_KEY, outputs=[pb.MapAttempt(map=1, attempt=1)], reason="x"),
    "Status": pb.StatusRequest(app=APP),
}
STRANGE_METHODS = ("Nothing", "", "../Hello", "hello", "Hello/Hello", "RegisterShuffle\0")
KEEP = {"bystander", APP}  # not to be unregistered by accident


class ControlAttack(Attack):
    name: ClassVar[str] = "control"

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(target.control, options)
        self.victims = Victims(target)

    def send(self, seed: int) -> int:
        rng = Random(f"{self.name} {seed}")
        method = rng.choice(list(REQUESTS))
        data = _request(method, rng)
        if rng.random() < 0.02:
            method = rng.choice(STRANGE_METHODS)
        call = self._channel.unary_unary(f"/flight_shuffle.v1.ShuffleControl/{method}", None, None)
        try:
            call(data, timeout=TIMEOUT)
        except grpc.RpcError as error:
            check_control(error)
        except ValueError:
            pass  # a method that this side's gRPC does not send
        return 1

    def close(self) -> None:
        self._channel.close()
        self.victims.close()


def _request(method: str, rng: Random) -> bytes:
    valid = REQUESTS[method]
    how = rng.randrange(10)
    if how == 0:
        return rng.randbytes(rng.choice((1, 3, 20, 500)))
    if how == 1 and rng.random() < 0.1:
        return _oversized(rng)
    if how < 5:
        data = damaged(valid.SerializeToString(), rng)
    elif how < 6:
        data = valid.SerializeToString() * rng.choice((2, 3))  # repeated fields add up, others are the last
    elif how < 7:
        data = changed(REQUESTS[rng.choice(list(REQUESTS))], rng).SerializeToString()  # of another method
    else:
        data = changed(valid, rng).SerializeToString()
    return b"" if method.startswith("Unregister") and any(app.encode() in data for app in KEEP) else data


def _oversized(rng: Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return pb.RegisterAppRequest(app="big", instance="x" * (1 << 20), name="y").SerializeToString()
    if kind == 1:
        return pb.ReportLostRequest(
            shuffle=_KEY, outputs=[pb.MapAttempt(map=n) for n in range(20_000)]
        ).SerializeToString()
    if kind == 2:
        return pb.HeartbeatRequest(app=rng.choice(TEXTS) * 1000 + "x").SerializeToString()
    return rng.randbytes(17 << 20)  # more than the server reads
