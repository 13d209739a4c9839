"""Microsecond RPCs with a short tail: clients and servers, blocking or of asyncio.

A call goes to a server or to a router that picks one. Every call ends: by the reply, by an
exception that says why, or by its deadline. A request runs once at most unless it is marked
idempotent. Messages have 8 MiB at most.

    with tailcut.Client("127.0.0.1:8000") as client:
        assert client.call(b"hello") == b"HELLO"
"""

import atexit
import os

from tailcut._aio import AsyncClient, AsyncServer, Call
from tailcut._core import Client, Request, Server, note_fork, stop_all
from tailcut._errors import (
    Closed,
    DeadlineExceeded,
    Error,
    NotCalled,
    OpenError,
    Refused,
    Rejected,
    ReplyTooLarge,
    Unreachable,
)

__all__ = [
    "AsyncClient",
    "AsyncServer",
    "Call",
    "Client",
    "Closed",
    "DeadlineExceeded",
    "Error",
    "NotCalled",
    "OpenError",
    "Refused",
    "Rejected",
    "ReplyTooLarge",
    "Request",
    "Server",
    "Unreachable",
]

# What a parent has open is not its child's to use, and servers on other threads end before the
# interpreter.
os.register_at_fork(after_in_child=note_fork)
atexit.register(stop_all)
