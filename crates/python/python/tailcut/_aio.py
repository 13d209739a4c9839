"""Clients and servers of asyncio. A thread of the library drives each one's socket; the loop
hears of all that has come since at one wake."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable

from tailcut._answer import answer_async
from tailcut._core import Calls, Request, Requests
from tailcut._errors import Closed


class Call(asyncio.Future[bytes]):
    """A call under way: the reply's bytes, once awaited. Cancelling it cancels the call, and the
    server drops the request where it waits."""

    _calls: Calls | None = None
    _key = 0

    def cancel(self, msg: object = None) -> bool:
        if not super().cancel(msg):
            return False
        if self._calls is not None:
            self._calls.cancel(self._key)
        return True


class AsyncClient:
    """A client of one server or router, for tasks of the loop that runs when it is made. It
    costs one socket and one thread. `seal` is the file of its keys."""

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 1.0,
        idempotent: bool = False,
        busy_poll: bool = False,
        transport: str = "r2p2",
        seal: str | os.PathLike[str] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = Calls(
            target,
            timeout=timeout,
            idempotent=idempotent,
            busy_poll=busy_poll,
            transport=transport,
            seal=seal,
        )
        self._fd = self._calls.fileno()
        self._loop.add_reader(self._fd, self._calls.take)
        self._is_open = True

    def call(
        self,
        request: bytes | bytearray | memoryview,
        *,
        timeout: float | None = None,
        idempotent: bool | None = None,
    ) -> Call:
        """Calls; await what it returns for the reply. The request leaves whether or not that is
        awaited. When a quarter of what may be outstanding is, 4,096 calls, it leaves as soon as
        it is its turn."""
        call = Call(loop=self._loop)
        call._key = self._calls.start(call, request, timeout, idempotent)
        call._calls = self._calls
        return call

    def metrics(self) -> dict[str, int]:
        """Counters since the start."""
        return self._calls.metrics()

    @property
    def local_address(self) -> str:
        """The client's own address."""
        return self._calls.local_address

    def close(self) -> None:
        """Closes it; calls that have not ended raise `Closed`."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            for call in self._calls.close():
                if not call.done():
                    call.set_exception(Closed("it has been closed"))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_open", False):
            return
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
        if self._loop.is_closed():
            self._calls.close()
        else:
            self._loop.call_soon_threadsafe(self.close)


class AsyncServer:
    """A server on one port, whose handlers are coroutines or functions and run on the loop."""

    def __init__(
        self,
        address: str,
        *,
        busy_poll: bool = False,
        transport: str = "r2p2",
        seal: str | os.PathLike[str] | None = None,
        access: str | os.PathLike[str] | None = None,
        cookies: str = "never",
    ) -> None:
        """Opens a server at HOST:PORT; port 0 takes a free one. `seal` is the file of the servers'
        keys, and `access` that of a policy. `cookies` says when clients must show one: never,
        under-load or always."""
        self._requests = Requests(
            address,
            busy_poll=busy_poll,
            transport=transport,
            seal=seal,
            access=access,
            cookies=cookies,
        )

    @property
    def address(self) -> str:
        """Where it serves, HOST:PORT."""
        return self._requests.address

    async def serve(self, handler: Callable[[bytes], bytes | Awaitable[bytes]]) -> None:
        """Answers requests until `stop`: `handler` is given a request's bytes and returns those
        of the reply, or is a coroutine that does. An exception refuses the request. Cancelled,
        it stops likewise: what runs is answered, within 5 s."""
        await self.serve_requests(lambda request: handler(request.data))

    async def serve_requests(
        self, handler: Callable[[Request], bytes | None | Awaitable[bytes | None]]
    ) -> None:
        """As `serve`, but that `handler` is given a `Request`, and may return `None` and answer it
        later, from any thread."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        tasks: set[asyncio.Task[None]] = set()

        def take() -> None:
            try:
                requests, is_over = self._requests.take()
            except Exception as error:
                ended.set_exception(error)
                loop.remove_reader(fd)
                return
            for request in requests:
                task = loop.create_task(answer_async(handler, request))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            if is_over:
                ended.set_result(None)
                loop.remove_reader(fd)

        fd = self._requests.fileno()
        self._requests.start()
        loop.add_reader(fd, take)
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([ended])
            raise
        finally:
            self.stop(0)
            loop.remove_reader(fd)
            for task in tasks:
                task.cancel()
        ended.result()

    def stop(self, limit: float = 5.0) -> None:
        """Has it stop: it takes no new requests, answers those that it has, within `limit`
        seconds, and `serve` returns. From any thread."""
        self._requests.stop(limit)
