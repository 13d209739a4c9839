"""`tailcut measure` against gRPC's own server: each kind of method. `TAILCUT` is the binary."""

import json
import os
import subprocess
from concurrent import futures

import grpc
import pytest

TAILCUT = os.environ["TAILCUT"]


class Echo(grpc.GenericRpcHandler):
    """Answers messages, which are bytes, with themselves."""

    def __init__(self):
        self.ended = 0

    def service(self, details):
        method = {
            "/echo.Echo/Say": grpc.unary_unary_rpc_method_handler(lambda message, _: message),
            "/echo.Echo/Collect": grpc.stream_unary_rpc_method_handler(self.collect),
            "/echo.Echo/Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "/echo.Echo/Hang": grpc.stream_stream_rpc_method_handler(self.hang_up),
        }
        return method.get(details.method)

    def collect(self, messages, _):
        return b"".join(messages)

    def talk(self, messages, _):
        """Takes a message only when the one before is answered, as a method does that keeps state."""
        for message in messages:
            yield message * 1000
        self.ended += 1

    def hang_up(self, messages, context):
        yield next(messages)
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")


@pytest.fixture
def echo():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    handler = Echo()
    server.add_generic_rpc_handlers([handler])
    handler.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield handler
    server.stop(None).wait()


def measure(echo, method, *options):
    app = ",".join([f"grpc:echo.Echo/{method}", "message=hi", *options])
    load = ["--rate", "50", "--warmup", "200ms", "--duration", "1s", "--timeout", "20s"]
    command = [TAILCUT, "measure", f"grpc://{echo.address}", "--app", app, *load, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    # Fifty calls are too few for the verdict, and a busy machine is told.
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("method, options", [("Say", []), ("Collect", ["count=20"]), ("Talk", ["turns=20"])])
def test_calls_are_answered(echo, method, options):
    result = measure(echo, method, *options)
    counts = result["counts"]
    assert counts["sent"] == counts["replied"] > 10, counts
    assert not counts["errors"] and counts["reconnects"] == 0, counts
    assert method != "Talk" or echo.ended >= counts["replied"]


def test_a_conversation_that_the_server_ends_is_an_error_of_its_name(echo):
    counts = measure(echo, "Hang", "turns=20")["counts"]
    assert counts["error_codes"] == {"8 RESOURCE_EXHAUSTED": counts["sent"]}, counts


def test_a_call_that_waits_for_nobody_ends_by_its_timeout(echo):
    """A client-streaming method answers at the end, which a conversation never comes to."""
    app = "grpc:echo.Echo/Collect,message=hi,turns=2"
    command = [TAILCUT, "measure", f"grpc://{echo.address}", "--app", app, "--rate", "50", "--timeout", "300ms"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stderr
    assert "does not answer grpc" in done.stderr.splitlines()[0]
