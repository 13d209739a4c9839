"""The exceptions. Their text names the address and, where there is something to do about it,
says what."""

from __future__ import annotations


class Error(Exception):
    """Why an operation did not succeed."""

    #: The server that refused the call, or is known to have had it when it failed, HOST:PORT: the
    #: server itself, also behind a router.
    server: str | None = None


class OpenError(Error, OSError):
    """A socket could not be had at the address, or a file of keys or of a policy cannot be read,
    holds none, or is another role's."""


class NotCalled(Error, ValueError):
    """The call was not made, and nothing was sent: too long a request, or a timeout out of
    range."""


class DeadlineExceeded(Error, TimeoutError):
    """The deadline passed. The request may or may not have run."""


class Unreachable(Error, ConnectionError):
    """Nobody answers there. The request may or may not have run."""


class Refused(Error):
    """The server or a router refused the request. It has not run, unless `reason` is `uncertain`,
    `panicked`, `unanswered` or `application`."""

    #: Why: `overload`, `stopping`, `no_server` and the like.
    reason: str = "unspecified"
    #: How many seconds to leave the target alone, where it is overloaded and says so. A client does
    #: so by itself.
    retry_after: float | None = None


class Rejected(Error):
    """The server's application refused the request, with a number and a text. A handler raises
    it."""

    _described: str | None = None

    def __init__(self, code: int, text: str = "") -> None:
        if not 0 <= code < 1 << 32:
            raise ValueError(f"code {code}: from 0 to 2**32 - 1")
        super().__init__(code, text)
        #: The application's number for why, from 0 to 2**32 - 1.
        self.code = code
        #: The application's text, of which 1024 bytes arrive.
        self.text = text

    def __str__(self) -> str:
        return self._described or f"rejected with code {self.code}: {self.text}"


class ReplyTooLarge(Error):
    """The reply is longer than this end takes."""


class Closed(Error):
    """The client or server has been closed, or belongs to the process that this one was forked
    from."""
