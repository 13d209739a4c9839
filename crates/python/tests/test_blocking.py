"""The blocking client and server."""

import os
import signal
import socket
import threading
import time

import pytest
import tailcut
from conftest import PATIENCE


@pytest.fixture
def silent():
    """Where nobody answers, and nobody says so."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield "127.0.0.1:%d" % deaf.getsockname()[1]


@pytest.fixture
def closed():
    """A port at which nothing listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % gone.getsockname()[1]


@pytest.mark.parametrize("transport", ["r2p2", "homa"])
def test_the_servers_of_the_command_answer(serve, transport):
    target = serve("echo", "--transport", transport)
    # Homa's server refuses what may have run, had a busy machine kept the first packet from it.
    options = {"transport": transport, "idempotent": transport == "homa"}
    with tailcut.Client(target, timeout=PATIENCE, **options) as client:
        assert client.call(b"hello") == b"hello"
        assert client.call(bytearray(b"hello")) == b"hello"
        long = os.urandom(8 << 20) if transport == "r2p2" else os.urandom(1 << 20)
        assert client.call(long) == long
        metrics = client.metrics()
        assert metrics["calls"] == 3 and metrics["replied"] == 3


def test_a_thousand_calls_at_once(serve):
    with tailcut.Client(serve("echo"), timeout=PATIENCE) as client:
        words = [b"%d" % number for number in range(1000)]
        assert client.call_many(words) == words
        assert client.call_many([]) == []


def test_a_server_and_a_client_that_poll(serving):
    target = serving(bytes.upper, busy_poll=True)
    with tailcut.Client(target, timeout=PATIENCE, busy_poll=True) as client:
        assert client.call(b"hello") == b"HELLO"


def test_what_is_not_called(serving):
    target = serving(bytes.upper)
    with tailcut.Client(target, timeout=PATIENCE) as client:
        for request in ["text", 5, None]:
            with pytest.raises(TypeError):
                client.call(request)
        with pytest.raises(tailcut.NotCalled, match="bytes, of at most"):
            client.call(bytes((8 << 20) + 1))
        with pytest.raises(tailcut.NotCalled, match="deadline"):
            client.call(b"", timeout=3600)
        for timeout in [-1, float("nan"), float("inf")]:
            with pytest.raises(ValueError):
                client.call(b"", timeout=timeout)
        with pytest.raises(TypeError):
            client.call(b"", 1.0)


def test_what_cannot_be_opened():
    for target in ["nowhere", "http://127.0.0.1:9"]:
        with pytest.raises(tailcut.OpenError, match=f"{target}: .*; write HOST:PORT"):
            tailcut.Client(target)
    with pytest.raises(OSError):
        tailcut.Server("192.0.2.1:0")
    with pytest.raises(ValueError, match="r2p2 or homa"):
        tailcut.Client("127.0.0.1:1", transport="tcp")


def test_a_deadline(silent):
    with tailcut.Client(silent) as client:
        with pytest.raises(tailcut.DeadlineExceeded):
            client.call(b"anybody?", timeout=0.05)
        with pytest.raises(TimeoutError):
            client.call_many([b"anybody?"] * 3, timeout=0.05)
        errors = client.call_many([b"anybody?"] * 3, timeout=0.05, return_exceptions=True)
        assert [type(error) for error in errors] == [tailcut.DeadlineExceeded] * 3
        assert client.metrics()["deadlines"] >= 5


def test_nobody_there(closed):
    with tailcut.Client(closed, timeout=PATIENCE) as client:
        with pytest.raises(tailcut.Unreachable, match="nobody answers there"):
            client.call(b"anybody?")


def test_a_closed_client(serving):
    client = tailcut.Client(serving(bytes.upper), timeout=PATIENCE)
    client.close()
    client.close()
    with pytest.raises(tailcut.Closed):
        client.call(b"")


def test_threads_share_a_client(serving):
    with tailcut.Client(serving(bytes.upper), timeout=PATIENCE) as client:
        replies = []
        threads = [
            threading.Thread(target=lambda: replies.extend(client.call(b"a") for _ in range(50)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert replies == [b"A"] * 400


def test_a_handler_refuses_one_request(serving, caplog):
    def handler(data):
        if data == b"reject":
            raise tailcut.Rejected(42, "no")
        if data == b"negative":
            raise tailcut.Rejected(-1)
        if data == b"nothing":
            return None
        return data

    with tailcut.Client(serving(handler), timeout=PATIENCE) as client:
        with pytest.raises(tailcut.Rejected, match="was rejected with code 42: no") as caught:
            client.call(b"reject")
        assert (caught.value.code, caught.value.text) == (42, "no")
        assert not caplog.records
        for broken in [b"negative", b"nothing"]:
            with pytest.raises(tailcut.Refused) as caught:
                client.call(broken)
            assert caught.value.reason == "panicked"
        assert [record.exc_info[0] for record in caplog.records] == [ValueError, TypeError]
        assert client.call(b"after") == b"after"


def test_a_request_tells_of_itself(serving):
    seen = {}

    def handler(request):
        assert request.data is request.data
        seen.update(client=request.client, left=request.time_left, idempotent=request.idempotent)
        assert not request.cancelled
        return request.data

    with tailcut.Client(serving(handler, of_requests=True), timeout=PATIENCE) as client:
        assert client.call(b"hello", idempotent=True) == b"hello"
        assert seen["client"] == "127.0.0.1:" + client.local_address.rpartition(":")[2]
        assert seen["idempotent"]
        assert 0 < seen["left"] <= PATIENCE


def test_an_answer_from_another_thread(serving):
    kept = []

    def handler(request):
        if request.data == b"later":
            kept.append(request)
            return None
        threading.Thread(target=kept.pop().reply, args=(b"now",)).start()
        return b"at once"

    target = serving(handler, of_requests=True)
    with tailcut.Client(target, timeout=PATIENCE) as client:
        assert client.call_many([b"later", b"next"]) == [b"now", b"at once"]


def test_a_request_is_answered_once(serving, caplog):
    def handler(request):
        request.reply(b"once")
        with pytest.raises(RuntimeError, match="answered"):
            request.reply(b"twice")
        with pytest.raises(RuntimeError, match="answered"):
            request.time_left
        raise ValueError("too late")

    with tailcut.Client(serving(handler, of_requests=True), timeout=PATIENCE) as client:
        assert client.call(b"") == b"once"
        assert client.call(b"") == b"once"
    assert "after it had answered" in caplog.text


def test_a_request_that_is_dropped_is_refused(serving):
    with tailcut.Client(
        serving(lambda request: None, of_requests=True), timeout=PATIENCE
    ) as client:
        with pytest.raises(tailcut.Refused) as caught:
            client.call(b"")
        assert caught.value.reason == "unanswered"


def test_a_server_serves_on_one_thread(serving):
    server = tailcut.Server("127.0.0.1:0")
    thread = threading.Thread(target=server.serve, args=(bytes.upper,))
    thread.start()
    with tailcut.Client(server.address, timeout=PATIENCE) as client:
        assert client.call(b"a") == b"A"
        with pytest.raises(RuntimeError, match="already"):
            server.serve(bytes.upper)
    server.stop()
    thread.join()


@pytest.fixture
def rung(serving):
    """A client whose calls ring an alarm in this process, and the requests of its server."""
    kept = []

    def handler(request):
        kept.append(request)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.getsignal(signal.SIGALRM)
    with tailcut.Client(serving(handler, of_requests=True), timeout=PATIENCE) as client:
        yield client, kept
        kept.clear()
    signal.signal(signal.SIGALRM, before)


def test_a_signal_is_handled_during_a_call(rung):
    client, kept = rung
    signal.signal(signal.SIGALRM, lambda *_: kept.pop().reply(b"handled"))
    assert client.call(b"") == b"handled"


def test_the_handler_of_a_signal_may_not_use_the_client_that_waits(rung):
    client, kept = rung
    raised = []

    def ring(*_):
        for use in (client.close, client.metrics, lambda: client.call(b"")):
            with pytest.raises(RuntimeError, match="this very thread") as caught:
                use()
            raised.append(caught)
        kept.pop().reply(b"handled")

    signal.signal(signal.SIGALRM, ring)
    assert client.call(b"") == b"handled"
    assert len(raised) == 3


def test_a_signal_that_raises_cancels_a_call(rung):
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    client, _ = rung
    signal.signal(signal.SIGALRM, ring)
    with pytest.raises(Alarm):
        client.call(b"")
    assert client.metrics()["cancelled"] == 1


def test_a_handler_may_end_its_server():
    server = tailcut.Server("127.0.0.1:0")

    def handler(data):
        if data == b"exit":
            raise SystemExit(3)
        return data

    def call():
        with tailcut.Client(server.address, timeout=PATIENCE) as client:
            client.call(b"stay")
            with pytest.raises(tailcut.Refused):
                client.call(b"exit")

    thread = threading.Thread(target=call)
    thread.start()
    with pytest.raises(SystemExit):
        server.serve(handler)
    thread.join()


def test_the_interpreter_goes_on_during_a_call(silent):
    counted = 0
    thread = threading.Thread(target=lambda: pytest.raises(TimeoutError, call))

    def call():
        with tailcut.Client(silent) as client:
            client.call(b"", timeout=0.2)

    began = time.monotonic()
    thread.start()
    while thread.is_alive():
        counted += 1
    assert counted > 1000 and time.monotonic() - began >= 0.2
