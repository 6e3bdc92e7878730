"""The `remote` plugin: batch shuffle through a standalone Flight Shuffle server."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TypeVar

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, new_run
from shuffle_api.interfaces import NO_OPTIONS, Options, ShuffleMaster, ShufflePlugin, ShuffleReader, ShuffleWriter
from shuffle_api.options import parse_options
from shuffle_api.values import BLOCKING, MAX_REPLICAS, ShuffleHandle
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.master import RemoteMaster
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_plugins.remote.reader import RemoteReader
from shuffle_plugins.remote.traffic import RemoteStatistics
from shuffle_plugins.remote.watch import LossWatch
from shuffle_plugins.remote.writer import OnBlock, RemoteWriter
from shuffle_transport.codecs import get_codec
from shuffle_transport.credential_files import CLIENT_OPTIONS, load_keyring

User = TypeVar("User", bound=ShuffleMaster | ShuffleWriter | ShuffleReader)


class RemoteShuffle(ShufflePlugin):
    """Data lives on the server's disks until its shuffle is unregistered, and can be read again and again.

    Option `server` is required at the driver. Tasks take the address from the handle; credentials they never find
    there, only in their own options.
    """

    name = "remote"
    mode = BLOCKING

    def __init__(self, options: Options = NO_OPTIONS) -> None:
        self._options = parse_options(RemoteOptions, options, os.environ)
        get_codec(self._options.codec)
        if self._options.replicas > MAX_REPLICAS:
            raise InvalidArgument(f"option 'replicas' is {self._options.replicas}", remedy="use 1 or 2")
        self._keys = load_keyring(**{name: getattr(self._options, name) for name in CLIENT_OPTIONS})
        self._lock = threading.Lock()
        self._connections: dict[tuple[str, str], Connection] = {}  # by address and application
        self._users: weakref.WeakSet[ShuffleMaster | ShuffleWriter | ShuffleReader] = weakref.WeakSet()
        self._closed = False
        self._past = RemoteStatistics()  # of connections that are closed

    def master(self, app: str) -> RemoteMaster:
        if not self._options.server:
            raise InvalidArgument("option 'server' is not set", remedy='RemoteShuffle({"server": "HOST:PORT"})')
        run = new_run(app)
        connection = self._connection(self._options.server, run)
        master = RemoteMaster(run, connection, self._options)
        with self._lock:  # for the tasks of the run in this process
            if (key := (connection.control.address, master.run)) not in self._connections:
                self._connections[key] = self._connections.pop((self._options.server, run))
        return self._track(master)

    def writer(self, handle: ShuffleHandle, attempt: MapAttempt, *, on_block: OnBlock | None = None) -> RemoteWriter:
        """See `ShufflePlugin.writer`; `on_block` receives each block."""
        handle.spec.check_map(attempt.map)
        connection = self._connection(handle.endpoint, handle.spec.id.app)
        return self._track(RemoteWriter(handle.spec, attempt, connection, self._options, on_block))

    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> RemoteReader:
        wanted = handle.spec.check_ranges(partitions, maps)
        connection = self._connection(handle.endpoint, handle.spec.id.app)
        return self._track(RemoteReader(handle.spec, partitions, wanted, connection, self._options))

    def watch(self, handle: ShuffleHandle) -> LossWatch:
        """The map outputs of a shuffle that are lost, as they are lost, with worker and reason. Close it at the end."""
        return LossWatch(self._connection(handle.endpoint, handle.spec.id.app).events, handle.spec.id)

    def statistics(self) -> RemoteStatistics:
        """What this plugin's writers and readers have moved so far, over the wire and by file."""
        with self._lock:
            connections = list(self._connections.values())
        return sum((connection.traffic.statistics() for connection in connections), self._past)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
        for user in list(self._users):
            user.abort() if isinstance(user, ShuffleWriter) else user.close()
        for connection in connections:
            connection.close()
        self._past = self.statistics()
        self._connections.clear()

    def _connection(self, address: str, app: str) -> Connection:
        with self._lock:
            if self._closed:
                raise InvalidArgument("the plugin is closed", remedy="open a new one")
            connection = self._connections.get((address, app))
            if connection is None:
                connection = Connection(address, app, self._options, self._keys.for_app(app))
                self._connections[address, app] = connection
            return connection

    def _track(self, user: User) -> User:
        self._users.add(user)
        return user
