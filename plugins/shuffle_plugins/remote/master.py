"""The driver's side of the `remote` plugin: registers, keeps the application alive, unregisters."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from shuffle_api.errors import AppExpired, InvalidArgument, ShuffleError, UnknownApp, UnknownShuffle
from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.interfaces import ShuffleMaster
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import MapOutput, ShuffleHandle, ShuffleSpec
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.locate import locate
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)


class RemoteMaster(ShuffleMaster):
    """One run of an application at one server. A thread sends its heartbeats until `close`.

    :ivar run: what the server knows it by.
    """

    def __init__(self, run: str, connection: Connection, options: RemoteOptions) -> None:
        self._connection, self._options = connection, options
        self._lock = threading.Lock()
        self._used: set[int] = set()  # shuffle numbers of this application, those that are gone too
        self.run = connection.begin(run)
        self._registration = pb.RegisterAppRequest(
            app=self.run, instance=run, name=name_of(run), only=options.only, driver=messages.this_driver()
        )
        self._registering = threading.Lock()
        reply = self._register()
        self._heartbeats = PeriodicTask(f"heartbeat-{self.run}", self._heartbeat, max(1, reply.heartbeat_seconds))
        self._closed = self._heartbeats.closing
        self._heartbeats.start()

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        if self._closed.is_set():
            raise InvalidArgument("the master is closed", remedy="open a new one")
        number = self._next_number() if shuffle is None else shuffle
        with self._lock:
            self._used.add(number)
        options = self._options
        spec = ShuffleSpec(
            ShuffleId(self.run, number), partitions, maps, options.codec, options.content, options.replicas
        )
        request = messages.spec_message(spec)
        request.known.CopyFrom(self._connection.workers.known())
        reply: pb.RegisterShuffleReply = self._ask("RegisterShuffle", request)
        self._connection.workers.learn(reply)
        registered = replace(spec, id=replace(spec.id, generation=reply.generation))
        return ShuffleHandle("remote", registered, self._connection.control.address)

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return list(locate(self._connection, handle.spec, None).outputs)

    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        try:
            self._connection.control.call(
                "UnregisterShuffle", pb.UnregisterShuffleRequest(shuffle=messages.key_of(handle.spec.id))
            )
        except (UnknownShuffle, UnknownApp) as error:
            log.debug("nothing to unregister: %s", error)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._heartbeats.close()
        try:
            with self._registering:
                self._connection.control.call("UnregisterApp", pb.UnregisterAppRequest(app=self.run))
        except ShuffleError as error:
            # The server expires the application by itself; a driver that is done must not fail for it.
            log.warning("application %s could not be unregistered, the server will expire it: %s", self.run, error)

    def _register(self) -> pb.RegisterAppReply:
        self._registration.known.CopyFrom(self._connection.workers.known())
        reply: pb.RegisterAppReply = self._connection.control.call("RegisterApp", self._registration)
        self._connection.workers.learn(reply)
        return reply

    def _ask(self, method: str, request: Message) -> Any:
        """The reply to a call. A server that does not have this run, because it expired there, gets it again."""
        try:
            return self._connection.control.call(method, request)
        except (AppExpired, UnknownApp) as error:
            with self._registering:
                if self._closed.is_set():
                    raise
                self._register()
            log.warning("application %s is registered again, its shuffles until now are gone: %s", self.run, error)
            return self._connection.control.call(method, request)

    def _next_number(self) -> int:
        """A number no shuffle of this application has had: late tasks of an old shuffle must not meet a new one."""
        with self._lock:
            return max(self._used, default=-1) + 1

    def _heartbeat(self) -> None:
        try:
            workers = self._connection.workers
            request = pb.HeartbeatRequest(app=self.run, known=workers.known(), driver=self._registration.driver)
            workers.learn(self._ask("Heartbeat", request))
        except ShuffleError as error:
            log.warning("heartbeat of application %s: %s", self.run, error)
