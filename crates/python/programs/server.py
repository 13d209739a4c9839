"""A server that answers in capitals: `bytes`, `later` from another thread, or of `asyncio`. It
prints its address, and `stopped` once Ctrl-C has ended it."""

import asyncio
import queue
import signal
import sys
import threading

import tailcut


def answer(data):
    if not data:
        raise tailcut.Rejected(42, "at least one byte, please")
    if data == b"fail":
        raise ValueError("as it was asked to")
    return data.upper()


def serve_bytes():
    server = tailcut.Server("127.0.0.1:0")
    print(server.address, flush=True)
    server.serve(answer)


def serve_later():
    kept = queue.Queue()

    def answer_kept():
        while request := kept.get():
            try:
                request.reply(answer(request.data))
            except tailcut.Rejected as error:
                request.reject(error.code, error.text)
            except ValueError:
                request.fail()

    thread = threading.Thread(target=answer_kept)
    thread.start()
    server = tailcut.Server("127.0.0.1:0")
    print(server.address, flush=True)
    try:
        server.serve_requests(kept.put)
    finally:
        kept.put(None)
        thread.join()


async def serve_asyncio():
    async def answer_soon(data):
        await asyncio.sleep(0)
        return answer(data)

    server = tailcut.AsyncServer("127.0.0.1:0")
    print(server.address, flush=True)
    await server.serve(answer_soon)


def main():
    # It is ignored where a shell has begun this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kinds = {"bytes": serve_bytes, "later": serve_later}
    kind = sys.argv[1]
    try:
        if kind == "asyncio":
            asyncio.run(serve_asyncio())
        else:
            kinds[kind]()
    except KeyboardInterrupt:
        print("stopped", flush=True)


main()
