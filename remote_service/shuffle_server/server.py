"""A server process: puts a master and a worker together, and takes them apart again."""

from __future__ import annotations

import logging
import os
import resource
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.registry.events import AppRemoved, Event, LostOutput, ShuffleRemoved
from shuffle_api.registry.operations import CommitMapOutput, LoseMapOutput, RegisterWorker
from shuffle_api.values import MapOutput, WorkerInfo
from shuffle_server import __version__
from shuffle_server.master.control import ControlService, start_control
from shuffle_server.master.master import Master
from shuffle_server.observe.calls import CallObserver, RequestFields
from shuffle_server.observe.figures import Sources
from shuffle_server.observe.log_context import fields_of, log_context
from shuffle_server.observe.observation import Observation
from shuffle_server.observe.worker_state import worker_status
from shuffle_server.options import ServerOptions, split_address
from shuffle_server.security import load_security, warn_of_strangers
from shuffle_server.store.directories import lock_directories, split_directories
from shuffle_server.store.store import Store
from shuffle_server.worker.coordinator import LocalCoordinator
from shuffle_server.worker.endpoint import FlightEndpoint
from shuffle_server.worker.handover import HandOver
from shuffle_server.worker.ingest import PutOptions
from shuffle_server.worker.worker import Worker
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS = 5.0
CONTROL_GRACE = 5.0
DATA_GRACE = 10.0


class Server:
    """Starts and serves from its constructor on, until `stop`.

    Raises StorageFailed (the data directory) and InvalidArgument (an address, a certificate, the secret) when it
    cannot start.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        host, port = split_address(options.listen, "--listen")
        data_host, data_port = split_address(options.data_listen, "--data-listen") if options.data_listen else (host, 0)
        security = load_security(options)
        warn_of_strangers({host, data_host}, security)
        roots = split_directories(options.data_dir)
        root = roots[0]
        self._lock_fds = lock_directories(roots)
        self._stop = threading.Event()
        raise_file_limit()
        with ExitStack() as undo:  # what is to be closed if it cannot start
            undo.callback(self._unlock)
            self._observation = Observation(options.metrics_listen)
            undo.callback(self._observation.close)
            instruments = self._observation.instruments
            sync = options.durability == "fsynced"
            self._store = Store(
                *(each / "worker" for each in roots),
                sync=sync,
                recycle=options.recycle,
                floor=options.free_floor / 100,
                app_max_bytes=options.app_max_bytes,
            )
            self._master = Master(root / "master", sync=sync)
            worker_id = _worker_id(root / "worker-id")
            info = WorkerInfo(worker_id, options.advertise or data_host, data_port)
            self._master.apply(RegisterWorker(info))
            self._master.subscribe(instruments.happened)
            self._recover(worker_id)
            self._master.subscribe(self._clean_up)
            self._pool = BufferPool(options.memory)
            self.worker = Worker(info, self._store, LocalCoordinator(self._master), self._pool, instruments)
            put = PutOptions(options.window, options.overload_timeout)
            try:
                hand_over = HandOver(self.worker, self._store, root / "worker" / "nonce")
                self._endpoint = FlightEndpoint(data_host, data_port, self.worker, put, security, hand_over)
            except (pa.ArrowException, OSError) as error:
                raise InvalidArgument(
                    f"cannot listen on {data_host}:{data_port}: {error}",
                    remedy="choose another --data-listen address, or port 0",
                ) from error
            self.worker.info = WorkerInfo(worker_id, info.host, self._endpoint.port)
            service = ControlService(
                self._master,
                self.worker,
                __version__,
                max(1, int(options.app_timeout / 4)),
                self._worker_states,
                options.app_max_shuffles,
            )
            self._control, control_port = start_control(
                service,
                host,
                port,
                options.control_threads,
                security,
                around=[CallObserver(instruments)],
                inside=[RequestFields()],
            )
            self._master.apply(RegisterWorker(self.worker.info))
            self.control_address = f"{options.advertise or host}:{control_port}"
            self.data_address = self.worker.info.address
            self.metrics_address = self._observation.address
            self._housekeeper = threading.Thread(target=self._keep_house, name="housekeeping")
            self._housekeeper.start()
            sources = Sources(worker_id, self._pool, self._store, self._master, root / "master")
            self._observation.attach(sources, options.window, self._housekeeper)
            undo.pop_all()

    def stop(self) -> bool:
        """Stop serving and close everything; call once. False when streams stayed open: they die with the process."""
        self._observation.stopping()
        self._stop.set()
        self.worker.stopping = True  # pushes under way are refused at their next message, new ones at once
        self._control.stop(CONTROL_GRACE).wait()
        # Arrow waits for the calls under way without a limit, and a peer may be stopped or cut off.
        ending = threading.Thread(target=self._endpoint.shutdown, name="ending", daemon=True)
        ending.start()
        ending.join(DATA_GRACE)
        if ending.is_alive():
            log.warning("streams are still open after %g s; they are cut, committed data is unharmed", DATA_GRACE)
        self._pool.close()
        self._housekeeper.join()
        self._observation.close()
        self._store.close()
        self._store.empty_trash()
        self._master.close()
        self._unlock()
        return not ending.is_alive()

    def _unlock(self) -> None:
        for fd in self._lock_fds:
            os.close(fd)

    def _worker_states(self) -> list[pb.WorkerStatus]:
        traffic = self._observation.instruments.traffic.totals()
        return [worker_status(self.worker.info.id, self._pool.statistics(), self._store.statistics(), traffic)]

    def _recover(self, worker_id: str) -> None:
        """Make registry and disk agree: what is complete on disk is committed, what is not there is lost."""
        registry = self._master.registry
        known = {spec.id for spec in registry.shuffles()}
        for shuffle in self._store.shuffles():
            if shuffle not in known:
                self._store.remove_shuffle(shuffle)
        found = set()
        for description in self._store.recover():
            output = MapOutput(description.output, worker_id, description.totals)
            try:
                self._master.apply(CommitMapOutput(description.shuffle_id, output))
            except ShuffleError as error:
                with log_context(**fields_of(description.shuffle_id, description.output)):
                    log.warning("dropped %s of %s: %s", description.output, description.shuffle_id, error)
                self._store.remove_output(description.shuffle_id, description.output)
            else:
                found.add((description.shuffle_id, description.output))
        gone = [
            (spec.id, output.output)
            for spec in registry.shuffles()
            for output in registry.map_outputs(spec.id)[0]
            if output.worker == worker_id and (spec.id, output.output) not in found
        ]
        for shuffle, output_id in gone:
            self._master.apply(LoseMapOutput(shuffle, output_id, "not on disk when the worker started"))
        log.info("recovered %d map outputs, %d lost", len(found), len(gone))

    def _clean_up(self, event: Event) -> None:
        """Data follows metadata: what the registry removed, the store removes."""
        if isinstance(event, ShuffleRemoved):
            self._store.remove_shuffle(event.id)
        elif isinstance(event, AppRemoved):
            self._store.remove_app(event.app)
            with log_context(app=event.app):
                log.info("application %s: %s, its data is removed", event.app, event.reason)
        elif isinstance(event, LostOutput):
            self._store.remove_output(event.shuffle, event.output.output)

    def _keep_house(self) -> None:
        while not self._stop.wait(HOUSEKEEPING_SECONDS):
            try:
                self._master.expire(self._options.app_timeout)
            except (ShuffleError, OSError) as error:
                log.warning("applications cannot be expired now: %s", error)  # the journal's disk may be full
            try:
                self._store.look()
                self._store.drop_idle(self._options.staged_timeout)
                self._store.empty_trash()
            except OSError as error:
                log.warning("what was removed cannot be deleted now: %s", error)


def _worker_id(path: Path) -> str:
    """This worker's name, chosen once per data directory: locations in running jobs name it."""
    if not path.exists():
        path.with_suffix(".new").write_text(f"w-{uuid.uuid4().hex[:12]}")
        path.with_suffix(".new").replace(path)
    return path.read_text().strip()


def raise_file_limit() -> None:
    """As many open files as the system lets this process have: one per attempt being written, and per pull."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
