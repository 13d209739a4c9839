"""What programs do with redis-py, against the server at the port in the first argument."""

import asyncio
import sys
import threading

import redis
import redis.asyncio

port = int(sys.argv[1])
server = redis.Redis(port=port)

# Values of any bytes, of any length.
assert server.ping()
assert server.set("a", b"\r\n\x00\xff") and server.get("a") == b"\r\n\x00\xff"
long = bytes(range(256)) * (8 << 12)
assert server.set("long", long) and server.get("long") == long
assert server.get("none") is None

# Structures, and scans that go on.
server.hset("hash", mapping={f"field:{i}": i for i in range(2000)})
assert dict(server.hscan_iter("hash")) == server.hgetall("hash")
server.zadd("board", {"x": 1.5, "y": 2})
assert server.zrange("board", 0, -1, withscores=True) == [(b"x", 1.5), (b"y", 2.0)]
server.mset({f"key:{i}": i for i in range(500)})
assert len(set(server.scan_iter("key:*"))) == 500

# A pipeline, in order; a transaction, as a whole; and one that would watch is refused, and none of it has run.
with server.pipeline(transaction=False) as pipeline:
    for i in range(1000):
        pipeline.incr("count").get("count")
    got = pipeline.execute()
assert [(n, int(text)) for n, text in zip(got[::2], got[1::2])] == [(i, i) for i in range(1, 1001)]
assert server.pipeline().set("whole", 1).incr("whole").get("whole").execute() == [True, 2, b"2"]
long = server.pipeline()
for i in range(1000):
    long.rpush("list", i)
assert long.lrange("list", 0, -1).execute()[-1] == [b"%d" % i for i in range(1000)]
assert server.pipeline().lpush("whole", 1).incr("whole").execute(raise_on_error=False)[1] == 3
try:
    server.transaction(lambda pipeline: pipeline.set("a", "changed"), "a")
    sys.exit("a transaction ran whose keys nobody watched")
except redis.RedisError as error:
    assert "WATCH cannot be called" in str(error), error
assert server.get("a") == b"\r\n\x00\xff"

# Errors are the server's, or say what cannot be.
for call, text in [
    (lambda: server.incr("a"), "not an integer"),
    (lambda: server.lpush("a", 1), "WRONGTYPE"),
    (lambda: server.blpop("none", 1), "BLPOP cannot be called"),
    (lambda: server.execute_command("SUBSCRIBE", "a"), "SUBSCRIBE cannot be called"),
]:
    try:
        sys.exit(f"it did not raise: {call()}")
    except redis.RedisError as error:
        assert text.removeprefix("WRONGTYPE ") in str(error), error

# Scripts, which are loaded where they are not known, and the lock that is made of them.
double = server.register_script("return redis.call('incrby', KEYS[1], ARGV[1] * 2)")
assert [double(keys=["doubled"], args=[5]) for _ in range(3)] == [10, 20, 30]
with server.lock("lock", timeout=30):
    assert not server.lock("lock", timeout=30).acquire(blocking=False)
assert server.lock("lock", timeout=30).acquire(blocking=False)

# Threads that share a pool of connections.
threads = [threading.Thread(target=lambda: [server.incr("shared") for _ in range(100)]) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert int(server.get("shared")) == 800


async def main():
    client = redis.asyncio.Redis(port=port)
    assert sorted(await asyncio.gather(*[client.incr("awaited") for _ in range(200)])) == list(range(1, 201))
    await client.close()


asyncio.run(main())
print("redis-py does not notice")
