"""`async for` over a reader: the loop goes on meanwhile, and nothing is lost when an await is cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shuffle_api.errors import InvalidArgument, StreamBroken
from shuffle_api.streaming import EndOfPartition, Watermark
from shuffle_plugins.pipelined import DataBlock
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, records_of

RECORDS = [b"%d" % number for number in range(300)]


def test_records_come_while_the_loop_goes_on(scene: Open) -> None:
    there = scene(flush_timeout=0.001)

    async def read() -> list[bytes]:
        got = []
        written = asyncio.Event()

        async def write() -> None:
            with there.writer() as writer:
                for record in RECORDS:
                    writer.write(0, record)
                    await asyncio.sleep(0)
                writer.commit()
            written.set()

        writing = asyncio.create_task(write())
        with there.reader() as reader:
            async for partition, record in reader:
                assert partition == 0
                got.append(record)
        await writing
        return got

    assert asyncio.run(read()) == RECORDS


def test_an_await_that_is_cancelled_loses_nothing(scene: Open) -> None:
    there = scene(flush_timeout=0.001)

    async def read() -> list[bytes]:
        got: list[bytes] = []
        with there.reader() as reader, there.writer() as writer:
            records = aiter(reader)
            for record in RECORDS[:20]:
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(records), 0.001)
                writer.write(0, record)
                got.append((await asyncio.wait_for(anext(records), WAIT))[1])
            writer.commit()
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(records), WAIT)
        return got

    assert asyncio.run(read()) == RECORDS[:20]


def test_events_have_markers_in_their_places(scene: Open) -> None:
    there = scene(flush_timeout=60)

    async def read() -> None:
        with there.reader() as reader, there.writer() as writer:
            writer.write(0, b"one")
            writer.emit(Watermark(7))
            writer.write(0, b"two")
            writer.commit()
            events = [event async for event in reader.async_events()]
        kinds = [type(event) for event in events]
        assert kinds[:3] == [DataBlock, Watermark, DataBlock]
        assert kinds[-1] is EndOfPartition
        assert records_of(events) == [b"one", b"two"]

    asyncio.run(read())


def test_whoever_awaits_gets_the_error_of_a_producer_or_of_a_closed_reader(scene: Open) -> None:
    there = scene(maps=1, guarantee="exactly_once", timeout=3.0)

    async def broken() -> None:
        with there.reader() as reader:
            writer = there.writer()
            writer.write(0, b"one")
            writer.flush()
            records = aiter(reader)
            assert await anext(records) == (0, b"one")
            writer.abort()
            with pytest.raises(StreamBroken):
                await anext(records)

    async def closed() -> None:
        reader = there.reader(attempt=1)
        waiting = asyncio.ensure_future(anext(aiter(reader)))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(reader.close)
        with pytest.raises(InvalidArgument, match="the reader is closed"):
            await waiting

    asyncio.run(broken())
    asyncio.run(closed())
    for thread in [each for each in threading.enumerate() if each.name == "pipelined-async"]:
        thread.join(WAIT)
        assert not thread.is_alive()
