"""Servers to call: `tailcut serve`, and Python's own on another thread. `TAILCUT` is the binary."""

import contextlib
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import tailcut

#: Seconds that a busy machine does not pause for.
PATIENCE = 30


@pytest.fixture
def serve():
    """Starts `tailcut serve` with an application; returns where it serves."""
    with contextlib.ExitStack() as stack:

        def start(app, *options):
            command = [os.environ["TAILCUT"], "serve", "--listen", "127.0.0.1:0", "--app", app]
            process = stack.enter_context(
                subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            said, _, address = process.stdout.readline().strip().partition(" ")
            assert said == "listening"
            return address

        yield start


@pytest.fixture
def serving():
    """Runs servers of Python on threads of their own, and ends them; returns where each serves."""
    with contextlib.ExitStack() as stack:

        def start(handler, *, of_requests=False, **options):
            server = tailcut.Server("127.0.0.1:0", **options)
            serve = server.serve_requests if of_requests else server.serve
            thread = threading.Thread(target=serve, args=(handler,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            return server.address

        yield start


@pytest.fixture
def page():
    """The blocks of Python of the page for users."""
    text = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def script():
    """Runs a script in an interpreter of its own, whose standard output and error it returns."""

    def run(text, *arguments, status=0):
        # Forks beside threads are what one of them is about.
        quiet = ["-W", "ignore::DeprecationWarning"]
        command = [sys.executable, *quiet, "-c", textwrap.dedent(text), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
        assert ended.returncode == status, ended.stderr
        return ended.stdout, ended.stderr

    return run
