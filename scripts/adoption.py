"""What scripts/adoption runs: see there. Processes are its own, on free ports of loopback, and end with it."""

import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bench:
    """Processes in a directory of their own."""

    def __init__(self, tailcut):
        self.tailcut, self.children = tailcut, []
        self.directory = tempfile.mkdtemp(prefix="tailcut-adoption-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, command):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.directory)
        self.children.append(child)
        return child

    def redis(self):
        port = free_port()
        self.start(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "local"])
        wait_for(port)
        return port

    def tail(self, *args):
        """A tailcut command; its port."""
        child = self.start([self.tailcut, *args])
        return int(child.stdout.readline().split()[1].rsplit(b":", 1)[1])

    def bridge(self, port, *more):
        return self.tail("bridge", "--listen", "127.0.0.1:0", "--app", "redis", "--to", f"tcp://127.0.0.1:{port}", *more)

    def gateway(self, port, *more):
        return self.tail("gateway", "--listen", "tcp://127.0.0.1:0", "--app", "redis", "--to", f"127.0.0.1:{port}", *more)

    def haproxy(self, port):
        own = free_port()
        path = os.path.join(self.directory, f"haproxy-{own}.cfg")
        with open(path, "w") as config:
            config.write(
                "global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n"
                f"listen redis\n  bind 127.0.0.1:{own}\n  server one 127.0.0.1:{port}\n"
            )
        self.start(["haproxy", "-f", path])
        wait_for(own)
        return own


def wait_for(port):
    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.01)
    sys.exit(f"adoption: nobody listens at port {port}")


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, commands):
        self.socket.sendall(b"".join(encode(command) for command in commands))

    def reply(self):
        line = self.file.readline()
        kind, count = line[:1], line[1:-2]
        if kind == b"$" and count != b"-1":
            return line + self.file.read(int(count) + 2)
        if kind in (b"*", b"~", b"%") and count != b"-1":
            return line + b"".join(self.reply() for _ in range(int(count) * (2 if kind == b"%" else 1)))
        if not line:
            sys.exit("adoption: a connection has ended")
        return line

    def ask(self, *words):
        self.send([[word.encode() for word in words]])
        return self.reply()


def encode(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


LINES = [line.split() for line in """SET K V;GET K;GET K;GET K;MGET K O;SET K V GET;SETNX K V;APPEND K V;STRLEN K;GETRANGE K 0 5;INCR K;INCRBY K N
DECR K;DEL K O;EXISTS K O;TYPE K;GETDEL K;SETRANGE K 3 V;LPUSH K V O;RPUSH K V;LPOP K;RPOP K 2;LRANGE K 0 -1;LLEN K;LINDEX K 1;LSET K 0 V
LTRIM K 0 20;HSET K F V;HGET K F;HDEL K F;HLEN K;HINCRBY K F N;HEXISTS K F;SADD K V F;SREM K V;SISMEMBER K V;SCARD K;ZADD K N F;ZSCORE K F
ZRANGE K 0 -1 WITHSCORES;ZRANK K F;ZINCRBY K N F;ZPOPMIN K;ZCARD K;RENAME K O;COPY K O;SETBIT K 7 1;BITCOUNT K;PING;NONSENSE K;GET;SELECT 0
UNLINK K;LMOVE K O LEFT RIGHT;DBSIZE""".replace("\n", ";").split(";")]


def contents(bench, count):
    plain, bridged = bench.redis(), bench.redis()
    bridges = [bench.bridge(bridged, "--server-id", str(index)) for index in range(2)]
    router = bench.tail("route", "--listen", "127.0.0.1:0", *[word for port in bridges for word in ("--server", f"127.0.0.1:{port}")])
    ours, theirs = Client(bench.gateway(router, "--timeout", "30s")), Client(plain)
    draw = random.Random(21)
    left, began = count, time.monotonic()
    while left:
        size = min(left, draw.randint(1, 100))
        commands = []
        for _ in range(size):
            words = {"K": b"k%d" % draw.randrange(1000), "O": b"k%d" % draw.randrange(1000), "F": b"f%d" % draw.randrange(8),
                     "N": b"%d" % draw.randrange(-1000, 1000), "V": draw.randbytes(draw.randrange(60))}
            commands.append([words.get(word, word.encode()) for word in draw.choice(LINES)])
        ours.send(commands)
        theirs.send(commands)
        for command in commands:
            (our, their) = (ours.reply(), theirs.reply())
            if our != their:
                sys.exit(f"adoption: {command} is answered {our}, and by plain Redis {their}")
        left -= size
    digests = [Client(port).ask("DEBUG", "DIGEST") for port in (bridged, plain)]
    keys = Client(plain).ask("DBSIZE").decode().strip()
    verdict = "equal" if digests[0] == digests[1] else "DIFFERENT"
    print(f"contents after {count} commands: {verdict} ({keys} keys, {digests[0].decode().strip()}), every reply equal, "
          f"{time.monotonic() - began:.0f} s")
    return digests[0] == digests[1]


def p50(client, calls):
    request, times = encode([b"GET", b"key"]), []
    for _ in range(calls):
        began = time.perf_counter_ns()
        client.socket.sendall(request)
        client.socket.recv(4096)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1e3


def latency(bench, rounds, flags):
    if not shutil.which("haproxy"):
        sys.exit("adoption: haproxy is missing (Debian: haproxy)")
    port = bench.redis()
    ways = {
        "plain": port,
        "haproxy": bench.haproxy(port),
        "tailcut": bench.gateway(bench.bridge(port, *flags), *flags),
    }
    clients = {name: Client(port) for name, port in ways.items()}
    clients["plain"].ask("SET", "key", "x" * 64)
    for client in clients.values():
        p50(client, 500)
    samples = {name: [] for name in ways}
    ratios = []
    for _ in range(rounds):
        for name, client in clients.items():
            samples[name].append(p50(client, 1000))
        plain, haproxy, ours = (samples[name][-1] for name in ("plain", "haproxy", "tailcut"))
        ratios.append((ours - plain) / (haproxy - plain))
    for name, values in samples.items():
        print(f"p50 of a GET, {name}: {statistics.median(values):.1f} us")
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"added by gateway and bridge over added by HAProxy: {middle:.2f} (quartiles {low:.2f}-{high:.2f}, {rounds} rounds)")
    return True


def main():
    tailcut, what, *rest = [os.path.abspath(sys.argv[1]), *sys.argv[2:], ""][:4]
    size = int(rest[0]) if rest and rest[0] else None
    with Bench(tailcut) as bench:
        if what == "contents":
            return contents(bench, size or 1_000_000)
        if what == "latency":
            return latency(bench, size or 21, ("--spin-ns", "0"))
        if what == "latency-as-it-comes":
            return latency(bench, size or 21, ())
    sys.exit("usage: scripts/adoption contents [COMMANDS] | latency [ROUNDS] | latency-as-it-comes [ROUNDS]")


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
