"""Processes of the scripts beside this: commands of `tailcut` that end with the block that began them."""

import os
import signal
import subprocess
import sys


class Processes:
    """Commands of one `tailcut`. What still runs at the end of the block is killed, however the block ends."""

    def __init__(self, binary):
        self.binary, self.processes = binary, []

    def begin(self):
        """Starts what the block begins with."""

    def start(self, *arguments):
        process = subprocess.Popen([self.binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.processes.append(process)
        return process

    def listen(self, *arguments, ports=1):
        """A server or router that listens, and its addresses."""
        process = self.start(*arguments)
        lines = [process.stdout.readline().split() for _ in range(ports)]
        if not all(line[:1] == ["listening"] for line in lines):
            raise OSError(f"tailcut {arguments[0]} does not start")
        return process, [line[1] for line in lines]

    def end(self, process, number=signal.SIGKILL):
        process.send_signal(number)
        process.wait()
        self.processes.remove(process)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C, or a SIGTERM on top of it, would leave some of them running.
        heeded = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.wait()
        finally:
            for number, handler in heeded.items():
                signal.signal(number, handler)


def exit_on_sigterm():
    """Leaves the blocks of a script that is told to end, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def default_binary():
    """The `tailcut` that was built here, with optimization where there is one."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target")
    built = [os.path.join(root, profile, "tailcut") for profile in ("release", "debug")]
    return next((path for path in built if os.path.exists(path)), built[0])


def need_binary(path):
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} is not there: cargo build --release -p tailcut-cli")
