"""A server of HTTP/1.1 in the place of a replica of apps/search: GET /?ns=N occupies its one searcher, and a core, for N ns of the
processor's time. Requests wait in one queue; a connection has a thread. Prints `listening ADDR`."""

import hashlib
import queue
import re
import socket
import threading
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def search(jobs):
    while True:
        needs_ns, done = jobs.get()
        ends_at = time.thread_time_ns() + needs_ns
        while time.thread_time_ns() < ends_at:
            # Some 20 us in which other threads of this process can run.
            hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 30)
        done.release()


def converse(connection, jobs):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    held, done = b"", threading.Semaphore(0)
    while read := connection.recv(65536):
        held += read
        while b"\r\n\r\n" in held:
            head, held = held.split(b"\r\n\r\n", 1)
            jobs.put((int(re.search(rb"\?ns=(\d+)", head)[1]), done))
            done.acquire()
            connection.sendall(ANSWER)


def main():
    jobs = queue.SimpleQueue()
    threading.Thread(target=search, args=(jobs,), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(f"listening 127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            threading.Thread(target=converse, args=(listener.accept()[0], jobs), daemon=True).start()


if __name__ == "__main__":
    main()
