"""Two ends of a channel joined by a wire in memory, without threads: every step is taken when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shuffle_api.errors import StreamBroken
from shuffle_transport.channels.backpressure_compressor import BackpressureCompressor
from shuffle_transport.channels.channel import BlockChannel
from shuffle_transport.channels.session import ChannelThreads, Session
from shuffle_transport.channels.stream import Message, Stream
from shuffle_transport.channels.timer_thread import TimerThread
from shuffle_transport.channels.writer_thread import Broke, WriterThread, _ignore
from shuffle_transport.codecs import get_codec
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channels.helpers import TIMEOUT


class Wire:
    """One direction of a stream; broken, it takes nothing and delivers nothing."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.broken = False


class WireStream(Stream):
    """One end of a stream over two wires."""

    peer = "simulated"

    def __init__(self, out: Wire, into: Wire) -> None:
        self._out, self._in = out, into

    def write(self, message: Message) -> None:
        if self._out.broken:
            raise StreamBroken("the wire is broken")
        self._out.messages.append(message)

    def read(self) -> Message | None:
        if self._in.broken or not self._in.messages:
            raise StreamBroken("the wire is broken")
        return self._in.messages.popleft()

    def half_close(self) -> None: ...
    def abort(self) -> None: ...
    def sever(self) -> None: ...
    def close(self) -> None: ...


class Errands(WriterThread):
    """A writer thread without a thread."""

    def __init__(self) -> None:
        super().__init__("errands")
        self.waiting: dict[Callable[[], None], None] = {}

    def soon(self, write: Callable[[], None], broke: Broke = _ignore) -> None:
        self.waiting[write] = None

    def run(self) -> None:
        """Do what there is to do now."""
        waiting, self.waiting = list(self.waiting), {}
        for write in waiting:
            write()


class Unkept(TimerThread):
    """A timer thread that never comes."""

    def begin(self, key: object, deadline: float, abort: Callable[[], None]) -> None: ...
    def hurry(self) -> None: ...


class End:
    """One end: its channel, and the steps that threads would take."""

    def __init__(self, name: str, pool: BufferPool, *, window: int, resume: bool, accepting: bool) -> None:
        self.writes = Errands()
        self.session = Session(
            f"end {name}",
            Granter(pool, TIMEOUT, maximum=window, announced=True),
            get_codec("none"),
            ChannelThreads(Unkept(name), self.writes, BackpressureCompressor()),
            silence=0,
            resume=resume,
        )
        self.channel = BlockChannel(name, "simulated", self.session, TIMEOUT, lambda: None)
        self.accepting = accepting
        self.wire = Wire()  # what comes here
        self.streams = 0

    def connect(self, out: Wire, into: Wire) -> None:
        self.wire = into
        stream = WireStream(out, into)
        self.session.attach(stream, resumed=self.streams > 0, accepting=self.accepting)
        self.streams += 1

    def disconnect(self) -> None:
        """The stream is broken: its own thread finds out."""
        if self.session.attached:
            self.session.run()

    def deliver(self) -> None:
        """Take in the next message, as a reading thread does."""
        self.session.dispatch(self.wire.messages.popleft())


def connect(near: End, far: End) -> None:
    """A new stream between both."""
    there, back = Wire(), Wire()
    near.connect(there, back)
    far.connect(back, there)


def disconnect(near: End, far: End) -> None:
    """Break the stream; messages under way are lost."""
    for end in (near, far):
        end.wire.broken = True
        end.wire.messages.clear()
    for end in (near, far):
        end.disconnect()
