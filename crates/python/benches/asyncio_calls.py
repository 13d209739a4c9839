"""Calls a second of asyncio with 64 outstanding, over those of grpcio: a client and a server of
each, all in Python, 32 bytes there and back.

`python/bench.sh` runs it. Slices of both alternate; it prints the medians, the median of the
ratios and its quartiles, with all processes on one core, and with clients and servers on one
each.

    asyncio_calls.py [--pairs 9] [--slice SECONDS]
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time

import grpc
import tailcut

REQUEST = bytes(32)
OUTSTANDING = 64
METHOD = "/bench.Echo/Call"


async def serve_tailcut(pipe):
    async def echo(data):
        return data

    server = tailcut.AsyncServer("127.0.0.1:0")
    pipe.send(server.address)
    await server.serve(echo)


async def serve_grpc(pipe):
    async def echo(data, _context):
        return data

    server = grpc.aio.server()
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench.Echo", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(f"127.0.0.1:{port}")
    await server.wait_for_termination()


async def rate(call, seconds):
    """Calls a second, with as many outstanding as there are tasks that call."""
    done = 0
    end = time.perf_counter() + seconds

    async def repeat():
        nonlocal done
        while time.perf_counter() < end:
            assert await call(REQUEST) == REQUEST
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(OUTSTANDING)))
    return done / (time.perf_counter() - began)


async def call_tailcut(target, seconds):
    async with tailcut.AsyncClient(target, timeout=10) as client:
        return await rate(client.call, seconds)


async def call_grpc(target, seconds):
    async with grpc.aio.insecure_channel(target) as channel:
        return await rate(channel.unary_unary(METHOD), seconds)


def in_process(core, serve, pipe):
    os.sched_setaffinity(0, [core])
    asyncio.run(serve(pipe))


def measure_in_process(core, measure, target, seconds, pipe):
    """In a process of its own, since the threads of one library stay after its slice."""
    os.sched_setaffinity(0, [core])
    pipe.send(asyncio.run(measure(target, seconds)))


def spawn(context, function, *arguments):
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    return process, ours.recv()


def measure(context, cores, kinds, seconds):
    """One slice of each kind."""
    rates = []
    for call, serve in kinds:
        server, target = spawn(context, in_process, cores[1], serve)
        client, result = spawn(context, measure_in_process, cores[0], call, target, seconds)
        client.join()
        server.kill()
        server.join()
        rates.append(result)
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--slice", type=float, default=1.0)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    kinds = [(call_grpc, serve_grpc), (call_tailcut, serve_tailcut)]
    available = sorted(os.sched_getaffinity(0))
    print(f"{'':<44} {'grpcio':>10} {'tailcut':>10} {'ratio':>7} {'quartiles':>15}")
    layouts = {"one core": (available[0],) * 2, "a core each": (available[0], available[-1])}
    for name, cores in layouts.items():
        pairs = [measure(context, cores, kinds, options.slice) for _ in range(options.pairs)]
        ratios = [ours / theirs for theirs, ours in pairs]
        theirs, ours = (statistics.median(column) for column in zip(*pairs))
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        row = f"P3 asyncio, 64 outstanding, {name}: calls/s"
        print(f"{row:<44} {theirs:>10.0f} {ours:>10.0f} {middle:>7.2f} {low:>9.2f}-{high:.2f}")


if __name__ == "__main__":
    main()
