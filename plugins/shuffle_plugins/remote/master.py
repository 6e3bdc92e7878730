"""The driver's side of the `remote` plugin: registers, keeps the application alive, unregisters."""

from __future__ import annotations

import logging
import threading
import uuid

from shuffle_api.errors import InvalidArgument, ShuffleError, UnknownApp, UnknownShuffle
from shuffle_api.ids import ShuffleId, check_app
from shuffle_api.interfaces import ShuffleMaster
from shuffle_api.values import MapOutput, ShuffleHandle, ShuffleSpec
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.locate import locate
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)


class RemoteMaster(ShuffleMaster):
    """One application at one server. A thread sends its heartbeats until `close`."""

    def __init__(self, app: str, connection: Connection, options: RemoteOptions) -> None:
        self._app, self._connection, self._options = check_app(app), connection, options
        self._lock = threading.Lock()
        self._used: set[int] = set()  # shuffle numbers of this application, those that are gone too
        connection.control.hello()
        reply = connection.control.call(
            "RegisterApp", pb.RegisterAppRequest(app=app, instance=uuid.uuid4().hex, name=app)
        )
        connection.learn(reply.workers)
        self._closed = threading.Event()
        self._heart = threading.Thread(
            target=self._beat, args=(max(1, reply.heartbeat_seconds),), name=f"heartbeat-{app}", daemon=True
        )
        self._heart.start()

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        if self._closed.is_set():
            raise InvalidArgument("the master is closed", remedy="open a new one")
        number = self._next_number() if shuffle is None else shuffle
        with self._lock:
            self._used.add(number)
        options = self._options
        spec = ShuffleSpec(
            ShuffleId(self._app, number), partitions, maps, options.codec, options.content, options.replicas
        )
        self._connection.learn(self._connection.control.call("RegisterShuffle", messages.spec_message(spec)).workers)
        return ShuffleHandle("remote", spec, self._connection.control.address)

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return locate(self._connection, handle.spec, None).outputs

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
        self._closed.set()
        self._heart.join()
        try:
            self._connection.control.call("UnregisterApp", pb.UnregisterAppRequest(app=self._app))
        except ShuffleError as error:
            # The server expires the application by itself; a driver that is done must not fail for it.
            log.warning("application %s could not be unregistered, the server will expire it: %s", self._app, error)

    def _next_number(self) -> int:
        """A number no shuffle of this application has had: late tasks of an old shuffle must not meet a new one."""
        with self._lock:
            return max(self._used, default=-1) + 1

    def _beat(self, seconds: int) -> None:
        while not self._closed.wait(seconds):
            try:
                self._connection.learn(
                    self._connection.control.call("Heartbeat", pb.HeartbeatRequest(app=self._app)).workers
                )
            except ShuffleError as error:
                log.warning("heartbeat of application %s: %s", self._app, error)
