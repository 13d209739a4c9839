"""The adapter on a real local cluster of two worker processes. `TAILCUT` is the binary."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed import LocalCluster

TAILCUT = os.environ["TAILCUT"]

SWEEP = """
name = "cluster"
simulation = "queue"
[fixed]
workers = 16
service = "exp:1us"
requests = 2000000
[grid]
policy = ["jbsq:2", "random"]
load = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
"""
POINTS = 12


@pytest.fixture
def sweep(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(SWEEP)
    return file


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a plain sweep writes."""
    file = tmp_path_factory.mktemp("plain") / "cluster.toml"
    file.write_text(SWEEP)
    subprocess.run([TAILCUT, "sim", "sweep", str(file)], check=True)
    return contents(file.with_suffix(".results"))


@pytest.fixture(scope="module")
def cluster():
    local = {"processes": True, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(n_workers=2, **local) as cluster:
        yield cluster


def test_all_points_arrive_although_a_worker_is_killed(sweep, expected, cluster):
    out = sweep.with_suffix(".results")
    adapter = start(sweep, cluster)
    wait_until(lambda: len(results(out)) >= 2, adapter)
    killed = next(iter(cluster.workers.values())).pid
    os.kill(killed, signal.SIGKILL)
    at_the_kill = len(results(out))
    _, stderr = adapter.communicate(timeout=240)
    assert adapter.returncode == 0, stderr
    assert at_the_kill < POINTS - 2, "the kill came too late to prove anything"
    assert all(nanny.pid != killed for nanny in cluster.workers.values()), "the worker is another process now"
    assert contents(out) == expected


def test_points_that_are_there_are_not_submitted(sweep, expected, cluster):
    out = sweep.with_suffix(".results")
    out.mkdir()
    for name, content in expected.items():
        (out / name).write_bytes(content)
    missing, broken = sorted(results(out))[:2]
    missing.unlink()
    broken.write_bytes(b"{")
    adapter = start(sweep, cluster)
    _, stderr = adapter.communicate(timeout=240)
    assert adapter.returncode == 0, stderr
    assert "points: 2 of 12 to run" in stderr
    assert contents(out) == expected


def test_a_point_that_fails_says_why_and_leaves_the_others(sweep, cluster, tmp_path):
    sweep.write_text(SWEEP.replace("2000000", "20000"))
    listed = subprocess.run([TAILCUT, "sim", "sweep", str(sweep), "--list"], check=True, capture_output=True, text=True)
    first = json.loads(listed.stdout.splitlines()[0])["hash"]
    # A binary that has no room for one of the points.
    failing = tmp_path / "failing"
    failing.write_text(f'#!/bin/sh\ncase "$*" in *{first}*) echo "no room" >&2; exit 1;; esac\nexec {TAILCUT} "$@"\n')
    failing.chmod(0o755)
    adapter = start(sweep, cluster, str(failing))
    _, stderr = adapter.communicate(timeout=240)
    assert adapter.returncode == 1
    assert "queue --load=0.3 --policy=" in stderr and "no room" in stderr, stderr
    assert "1 of 12 points failed" in stderr
    assert len(results(sweep.with_suffix(".results"))) == POINTS - 1


def test_a_cluster_of_its_own(sweep):
    sweep.write_text(SWEEP.replace("2000000", "20000"))
    command = [sys.executable, "-m", "tailcut_sweep", str(sweep), "--workers-local", "1", "--tailcut", TAILCUT]
    subprocess.run(command, check=True, timeout=240)
    assert len(results(sweep.with_suffix(".results"))) == POINTS
    assert sweep.with_suffix(".results").joinpath("cluster.html").exists()


def test_a_bad_sweep_is_refused_before_anything_is_submitted(sweep, cluster):
    sweep.write_text(SWEEP.replace("workers", "wokers"))
    adapter = start(sweep, cluster)
    _, stderr = adapter.communicate(timeout=60)
    assert adapter.returncode == 1
    assert "unexpected argument '--wokers'" in stderr
    assert "points:" not in stderr


def start(sweep, cluster, binary=TAILCUT):
    command = [sys.executable, "-m", "tailcut_sweep", str(sweep)]
    command += ["--scheduler", cluster.scheduler_address, "--tailcut", binary]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def results(out: Path):
    return [path for path in out.glob("*.json") if not path.name.startswith(".")]


def contents(out: Path):
    return {path.name: path.read_bytes() for path in out.iterdir()}
