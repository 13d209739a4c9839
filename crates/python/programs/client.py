"""Calls a server that reverses bytes: `blocking` or of `asyncio`, and says whether all is as
expected."""

import asyncio
import sys

import tailcut

LONG = bytes(range(256)) * (8 << 12)
PATIENCE = 30


def expect(what, expected):
    if what != expected:
        sys.exit(f"{what!r} instead of {expected!r}")


def expect_error(error, kind, **attributes):
    expect(type(error), kind)
    expect({name: getattr(error, name) for name in attributes}, attributes)


def blocking(target):
    with tailcut.Client(target, timeout=PATIENCE) as client:
        expect(client.call(b"stressed"), b"desserts")
        expect(client.call(memoryview(b"stressed")), b"desserts")
        expect(client.call(LONG), LONG[::-1])
        expect(client.call(b"idempotent?"), b"no")
        expect(client.call(b"idempotent?", idempotent=True), b"yes")
        words = [b"%d" % number for number in range(1000)]
        expect(client.call_many(words), [word[::-1] for word in words])
        results = client.call_many([b"ab", b"reject", b"drop"], return_exceptions=True)
        expect(results[0], b"ba")
        expect_error(results[1], tailcut.Rejected, code=7, text="not this one", server=target)
        expect_error(results[2], tailcut.Refused, reason="unanswered", retry_after=None)


async def of_asyncio(target):
    async with tailcut.AsyncClient(target, timeout=PATIENCE) as client:
        expect(await client.call(b"stressed"), b"desserts")
        expect(await client.call(LONG), LONG[::-1])
        expect(await client.call(b"idempotent?", idempotent=True), b"yes")
        words = [b"%d" % number for number in range(1000)]
        expect(await asyncio.gather(*map(client.call, words)), [word[::-1] for word in words])
        calls = map(client.call, [b"ab", b"reject", b"drop"])
        results = await asyncio.gather(*calls, return_exceptions=True)
        expect(results[0], b"ba")
        expect_error(results[1], tailcut.Rejected, code=7, text="not this one", server=target)
        expect_error(results[2], tailcut.Refused, reason="unanswered", retry_after=None)


def main():
    kind, target = sys.argv[1:]
    if kind == "asyncio":
        asyncio.run(of_asyncio(target))
    else:
        blocking(target)
    print("all as expected", flush=True)


main()
