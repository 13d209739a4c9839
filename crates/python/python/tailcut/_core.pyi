"""The extension module."""

import asyncio
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, overload

_BytesLike = bytes | bytearray | memoryview
_Path = str | os.PathLike[str]
_Transport = Literal["r2p2", "homa"]

class Client:
    def __new__(
        cls,
        target: str,
        *,
        timeout: float = 1.0,
        idempotent: bool = False,
        busy_poll: bool = False,
        transport: _Transport = "r2p2",
        seal: _Path | None = None,
    ) -> Client: ...
    def call(
        self, request: _BytesLike, *, timeout: float | None = None, idempotent: bool | None = None
    ) -> bytes: ...
    @overload
    def call_many(
        self,
        requests: Sequence[_BytesLike],
        *,
        timeout: float | None = None,
        idempotent: bool | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[bytes]: ...
    @overload
    def call_many(
        self,
        requests: Sequence[_BytesLike],
        *,
        timeout: float | None = None,
        idempotent: bool | None = None,
        return_exceptions: bool = False,
    ) -> list[bytes | Exception]: ...
    def metrics(self) -> dict[str, int]: ...
    @property
    def local_address(self) -> str: ...
    def close(self) -> None: ...
    def __enter__(self) -> Client: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class Server:
    def __new__(
        cls,
        address: str,
        *,
        busy_poll: bool = False,
        transport: _Transport = "r2p2",
        seal: _Path | None = None,
        access: _Path | None = None,
        cookies: str = "never",
    ) -> Server: ...
    @property
    def address(self) -> str: ...
    def serve(self, handler: Callable[[bytes], _BytesLike]) -> None: ...
    def serve_requests(self, handler: Callable[[Request], _BytesLike | None]) -> None: ...
    def stop(self, limit: float = 5.0) -> None: ...

class Request:
    @property
    def data(self) -> bytes: ...
    @property
    def client(self) -> str: ...
    @property
    def identity(self) -> int | None: ...
    @property
    def time_left(self) -> float: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def cancelled(self) -> bool: ...
    def reply(self, reply: _BytesLike) -> None: ...
    def reject(self, code: int, text: str = "") -> None: ...
    def fail(self) -> None: ...

class Calls:
    def __new__(
        cls,
        target: str,
        *,
        timeout: float,
        idempotent: bool,
        busy_poll: bool,
        transport: str,
        seal: _Path | None,
    ) -> Calls: ...
    def fileno(self) -> int: ...
    def start(
        self,
        future: asyncio.Future[bytes],
        request: _BytesLike,
        timeout: float | None,
        idempotent: bool | None,
    ) -> int: ...
    def cancel(self, key: int) -> None: ...
    def take(self) -> None: ...
    def metrics(self) -> dict[str, int]: ...
    @property
    def local_address(self) -> str: ...
    def close(self) -> list[asyncio.Future[bytes]]: ...

class Requests:
    def __new__(
        cls,
        address: str,
        *,
        busy_poll: bool,
        transport: str,
        seal: _Path | None,
        access: _Path | None,
        cookies: str,
    ) -> Requests: ...
    @property
    def address(self) -> str: ...
    def fileno(self) -> int: ...
    def start(self) -> None: ...
    def take(self) -> tuple[list[Request], bool]: ...
    def stop(self, limit: float) -> None: ...

def note_fork() -> None: ...
def stop_all() -> None: ...
