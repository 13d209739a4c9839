"""What handlers do to requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from tailcut._core import Request
from tailcut._errors import Rejected

_logger = logging.getLogger("tailcut")


def rejection(error: BaseException) -> tuple[int, str] | None:
    """The number and the text that a handler's exception refuses its request with. Others are
    logged, and have none; those that are no `Exception` end more than a request."""
    if isinstance(error, Rejected):
        return error.code, error.text
    if not isinstance(error, Exception):
        raise error
    _logger.error("a handler failed; its request is refused", exc_info=error)
    return None


def refuse(request: Request, error: BaseException) -> None:
    """Refuses a request for what its handler has raised; one that it answered before stays
    answered."""
    rejected = rejection(error)
    try:
        if rejected is None:
            request.fail()
        else:
            request.reject(*rejected)
    except Exception:
        _logger.error(
            "a handler failed, after it had answered or with a bad code or text", exc_info=error
        )


def answer(handler: Callable[[Request], bytes | None], request: Request) -> None:
    """Answers a request by a handler, which may leave it for later."""
    try:
        reply = handler(request)
        if reply is not None:
            request.reply(reply)
    except BaseException as error:
        refuse(request, error)


async def answer_async(
    handler: Callable[[Request], bytes | None | Awaitable[bytes | None]], request: Request
) -> None:
    """As `answer`, by a handler that may await."""
    try:
        reply = handler(request)
        if not isinstance(reply, bytes) and isinstance(reply, Awaitable):
            reply = await reply
        if reply is not None:
            request.reply(reply)
    except Exception as error:
        refuse(request, error)
