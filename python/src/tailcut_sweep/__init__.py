"""Runs the points of a `tailcut sim sweep` on a Dask cluster.

What a point is, whether its result is there, and what is made of all results is `tailcut`'s business: this module lists, submits,
and keeps what comes back.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, LocalCluster, as_completed


def main(argv=None):
    """The command; gives its exit code."""
    args = parse(argv)
    out = args.out or args.file.with_suffix(".results")
    tailcut = [args.tailcut, "sim", "sweep", str(args.file), "--out", str(out)]
    listing = subprocess.run([*tailcut, "--list"], stdout=subprocess.PIPE, check=False)
    if listing.returncode != 0:
        return listing.returncode
    points = [json.loads(line) for line in listing.stdout.splitlines()]
    missing = [point for point in points if not point["done"]]
    print(f"points: {len(missing)} of {len(points)} to run", file=sys.stderr)
    if missing:
        out.mkdir(parents=True, exist_ok=True)
        with connected(args) as client:
            if not run_all(client, args, missing, out):
                return 1
    return subprocess.run([*tailcut, "--report-only"], check=False).returncode


def parse(argv):
    parser = argparse.ArgumentParser(prog="tailcut-sweep", description="Run the points of a tailcut sweep on a Dask cluster.")
    parser.add_argument("file", metavar="FILE.toml", type=Path, help="the sweep")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="the cluster's scheduler, such as tcp://10.0.0.1:8786")
    where.add_argument("--workers-local", metavar="N", type=int, help="start a cluster of N processes on this machine")
    parser.add_argument("--out", metavar="DIR", type=Path, help="directory of the results [default: FILE.results]")
    parser.add_argument("--tailcut", metavar="PATH", default="tailcut", help="the binary, here and at the workers")
    return parser.parse_args(argv)


@contextmanager
def connected(args):
    """A client of the cluster; one that was started here ends with it."""
    if args.scheduler:
        with Client(args.scheduler) as client:
            yield client
        return
    local = {"processes": True, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(n_workers=args.workers_local, **local) as cluster, Client(cluster) as client:
        yield client


def run_all(client, args, points, out):
    """Whether every point has a result now. Each is kept when it arrives, so whoever starts again loses nothing."""
    text = args.file.read_text(encoding="utf-8")
    names = {}
    for point in points:
        # Not pure: a point that failed in an earlier run is to be tried again.
        future = client.submit(run_point, args.tailcut, text, point["hash"], retries=RETRIES, pure=False)
        names[future] = point
    failed = 0
    for count, future in enumerate(as_completed(list(names)), start=1):
        point = names.pop(future)
        result, message = outcome(future)
        if result is None:
            failed += 1
            print(f"{' '.join(point['args'])}: {message}", file=sys.stderr)
        else:
            keep(out / f"{point['hash']}.json", result)
        if sys.stderr.isatty():
            print(f"\r{count}/{len(points)} points", end="\n" if count == len(points) else "", file=sys.stderr, flush=True)
    if failed:
        print(f"tailcut-sweep: {failed} of {len(points)} points failed", file=sys.stderr)
    return failed == 0


def outcome(future):
    """The result of a point, or why there is none."""
    error = future.exception()
    return future.result() if error is None else (None, f"{type(error).__name__}: {error}")


def run_point(tailcut, text, name):
    """Runs at a worker: the file's content of a point, or its message.

    A point that fails gives its message, and is not tried again: it would fail again. A process that was ended by a signal, or
    could not be started, raises, and Dask tries again.
    """
    with tempfile.TemporaryDirectory(prefix="tailcut-sweep-") as scratch:
        file = Path(scratch, "sweep.toml")
        file.write_text(text, encoding="utf-8")
        command = [tailcut, "sim", "sweep", str(file), "--out", str(Path(scratch, "results")), "--point", name, "--json", "-"]
        # Dask counts one thread a task.
        environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False)
    if ended.returncode < 0:
        raise RuntimeError(f"tailcut was ended by signal {-ended.returncode}")
    if ended.returncode > 0:
        return None, ended.stderr.decode(errors="replace").strip()
    return ended.stdout, None


def keep(path, content):
    """Writes a file as a whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


RETRIES = 3
