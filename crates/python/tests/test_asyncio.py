"""The client and the server of asyncio."""

import asyncio
import gc
import os
import threading
import warnings

import pytest
import tailcut
from conftest import PATIENCE


def run(main):
    """Runs a coroutine in a loop of its own, and says what the loop complains of."""
    complaints = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        return await asyncio.wait_for(main, 4 * PATIENCE)

    result = asyncio.run(watched())
    assert not complaints
    return result


class Serving:
    """A server of asyncio beside a test."""

    def __init__(self, handler, of_requests=False):
        self.server = tailcut.AsyncServer("127.0.0.1:0")
        serve = self.server.serve_requests if of_requests else self.server.serve
        self.serve = serve(handler)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.serve)
        return self.server.address

    async def __aexit__(self, *_):
        self.server.stop()
        await self.task


def test_the_servers_of_the_command_answer(serve):
    target = serve("echo")

    async def main():
        async with tailcut.AsyncClient(target, timeout=PATIENCE) as client:
            assert await client.call(b"hello") == b"hello"
            long = os.urandom(8 << 20)
            assert await client.call(long) == long
            assert client.metrics()["replied"] == 2
            assert int(client.local_address.rpartition(":")[2]) > 0

    run(main())


def test_ten_thousand_calls_at_once(serve):
    target = serve("echo")

    async def main():
        async with tailcut.AsyncClient(target, timeout=PATIENCE) as client:
            words = [b"%d" % number for number in range(10_000)]
            assert await asyncio.gather(*map(client.call, words)) == words

    run(main())


def test_coroutines_answer():
    async def handler(data):
        if data == b"reject":
            raise tailcut.Rejected(42, "no")
        await asyncio.sleep(0)
        return data.upper()

    async def main():
        async with (
            Serving(handler) as target,
            tailcut.AsyncClient(target, timeout=PATIENCE) as client,
        ):
            words = [b"a%d" % number for number in range(1000)]
            assert await asyncio.gather(*map(client.call, words)) == [
                word.upper() for word in words
            ]
            with pytest.raises(tailcut.Rejected) as caught:
                await client.call(b"reject")
            assert (caught.value.code, caught.value.text) == (42, "no")

    run(main())


def test_functions_answer_and_fail_alone(caplog):
    def handler(data):
        return {b"a": b"A"}[data]

    async def main():
        async with (
            Serving(handler) as target,
            tailcut.AsyncClient(target, timeout=PATIENCE) as client,
        ):
            with pytest.raises(tailcut.Refused) as caught:
                await client.call(b"b")
            assert caught.value.reason == "panicked"
            assert await client.call(b"a") == b"A"

    run(main())
    assert [record.exc_info[0] for record in caplog.records] == [KeyError]


def test_a_thread_answers_later():
    def handler(request):
        threading.Thread(target=request.reply, args=(request.data,)).start()

    async def main():
        async with Serving(handler, of_requests=True) as target:
            async with tailcut.AsyncClient(target, timeout=PATIENCE) as client:
                assert await client.call(b"a") == b"a"

    run(main())


def test_a_deadline_and_a_cancelled_call():
    async def main():
        begun, over = asyncio.get_running_loop().create_future(), asyncio.Event()

        async def handler(request):
            if request.data == b"to be cancelled":
                begun.set_result(request)
            await over.wait()
            return b""

        async with Serving(handler, of_requests=True) as target:
            async with tailcut.AsyncClient(target, timeout=PATIENCE) as client:
                with pytest.raises(tailcut.DeadlineExceeded):
                    await client.call(b"", timeout=0.05)
                call = client.call(b"to be cancelled")
                request = await begun
                task = asyncio.ensure_future(asyncio.wait_for(call, PATIENCE))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert call.cancelled() and not call.cancel()
                # The server hears of it, which may take a moment.
                async with tailcut.AsyncClient(target, timeout=PATIENCE) as other:
                    while not request.cancelled:
                        with pytest.raises(tailcut.DeadlineExceeded):
                            await other.call(b"", timeout=0.01)
                assert client.metrics()["cancelled"] == 1
                over.set()

    run(main())


def test_a_closed_client():
    async def main():
        over = asyncio.Event()

        async def handler(_):
            await over.wait()
            return b""

        async with Serving(handler) as target:
            client = tailcut.AsyncClient(target, timeout=PATIENCE)
            call = client.call(b"")
            client.close()
            client.close()
            for closed in [lambda: call, lambda: client.call(b"")]:
                with pytest.raises(tailcut.Closed):
                    await closed()
            over.set()

    run(main())


def test_a_client_that_is_not_closed_says_so_and_closes():
    async def main():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client = tailcut.AsyncClient("127.0.0.1:9")
            fd = client._fd
            del client
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [warning.category for warning in caught] == [ResourceWarning]
        assert not asyncio.get_running_loop().remove_reader(fd)

    run(main())


def test_outside_of_a_loop_there_is_no_client():
    with pytest.raises(RuntimeError, match="no running event loop"):
        tailcut.AsyncClient("127.0.0.1:9")


def test_a_server_that_is_cancelled_answers_what_it_has():
    async def main():
        begun, over = asyncio.Event(), asyncio.Event()

        async def handler(data):
            begun.set()
            await over.wait()
            return data

        server = tailcut.AsyncServer("127.0.0.1:0")
        serving = asyncio.create_task(server.serve(handler))
        async with tailcut.AsyncClient(server.address, timeout=PATIENCE) as client:
            call = client.call(b"a")
            await begun.wait()
            serving.cancel()
            await asyncio.sleep(0)
            over.set()
            assert await call == b"a"
            with pytest.raises(asyncio.CancelledError):
                await serving
        with pytest.raises(RuntimeError, match="already"):
            await server.serve(handler)

    run(main())
