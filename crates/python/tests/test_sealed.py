"""Sealed services: keys in files, who calls, and who may."""

import asyncio
import inspect
import os
import socket
import subprocess
import threading

import pytest
import tailcut
from conftest import PATIENCE

DENIED = "the server's access policy: client 4 may not call by bytes that name no method"


class Group:
    """Files of a group's keys, and of policies, in a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.servers = directory / "servers.keys"
        self._keys("new", self.servers)

    def client(self, number):
        return self._derived(f"{number}.keys", "--client", str(number))

    def router(self):
        return self._derived("router.keys", "--router")

    def access(self, *rules):
        path = self.directory / "access.txt"
        path.write_text("\n".join(["tailcut-access 1", *rules, ""]))
        return path

    def _derived(self, name, *role):
        path = self.directory / name
        if not path.exists():
            self._keys("derive", self.servers, path, *role)
        return path

    def _keys(self, *arguments):
        subprocess.run([os.environ["TAILCUT"], "keys", *arguments], check=True)


@pytest.fixture
def group(tmp_path):
    return Group(tmp_path)


def identity(request):
    return repr(request.identity).encode()


def test_a_sealed_call_tells_who_calls(serving, group):
    target = serving(identity, of_requests=True, seal=group.servers)
    for number in [3, 4]:
        keys = group.client(number)
        for seal in [keys, str(keys)]:
            with tailcut.Client(target, timeout=PATIENCE, seal=seal) as client:
                assert client.call(b"who?") == b"%d" % number
                assert client.call_many([b"who?"] * 100) == [b"%d" % number] * 100


def test_an_open_call_tells_of_nobody(serving):
    with tailcut.Client(serving(identity, of_requests=True), timeout=PATIENCE) as client:
        assert client.call(b"who?") == b"None"


def test_who_calls_is_told_no_more_once_it_is_answered(serving, group):
    raised = []

    def handler(request):
        request.reply(b"")
        with pytest.raises(RuntimeError, match="answered"):
            request.identity
        raised.append(request)

    target = serving(handler, of_requests=True, seal=group.servers)
    with tailcut.Client(target, timeout=PATIENCE, seal=group.client(3)) as client:
        client.call(b"first")
        client.call(b"second")
    assert raised


def test_a_sealed_call_of_asyncio_tells_who_calls(group):
    async def main():
        access = group.access("allow 3 *")
        server = tailcut.AsyncServer("127.0.0.1:0", seal=group.servers, access=access)
        serving = asyncio.create_task(server.serve_requests(identity))
        options = {"timeout": PATIENCE}
        async with tailcut.AsyncClient(server.address, seal=group.client(3), **options) as client:
            calls = [client.call(b"who?") for _ in range(100)]
            assert await asyncio.gather(*calls) == [b"3"] * 100
        async with tailcut.AsyncClient(server.address, seal=group.client(4), **options) as client:
            with pytest.raises(tailcut.Rejected) as caught:
                await client.call(b"who?")
            assert (caught.value.code, caught.value.text) == (7, DENIED)
        server.stop()
        await serving

    asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))


def test_the_sealed_servers_of_the_command_answer(serve, group):
    target = serve("echo", "--seal", group.servers)
    with tailcut.Client(target, timeout=PATIENCE, seal=group.client(3)) as client:
        assert client.call(b"hello") == b"hello"
        long = os.urandom(1 << 20)
        assert client.call(long) == long


def test_a_denied_call_is_rejected_and_no_handler_hears_of_it(serving, group):
    heard = []

    def handler(request):
        heard.append(request.identity)
        return b""

    access = group.access("allow any *", "deny 4 *")
    target = serving(handler, of_requests=True, seal=group.servers, access=access)
    with tailcut.Client(target, timeout=PATIENCE, seal=group.client(4)) as client:
        with pytest.raises(tailcut.Rejected, match=DENIED) as caught:
            client.call(b"")
        assert (caught.value.code, caught.value.text) == (7, DENIED)
    with tailcut.Client(target, timeout=PATIENCE, seal=group.client(3)) as client:
        assert client.call(b"") == b""
    assert heard == [3]


def test_a_call_without_keys_or_with_another_group_s_has_no_answer(serving, group, tmp_path):
    heard = []
    target = serving(heard.append, seal=group.servers)
    (tmp_path / "other").mkdir()
    for seal in [None, Group(tmp_path / "other").client(3)]:
        with tailcut.Client(target, timeout=0.1, seal=seal) as client:
            with pytest.raises((tailcut.DeadlineExceeded, tailcut.Unreachable)):
                client.call(b"who?")
    with tailcut.Client(serving(bytes.upper), timeout=0.1, seal=group.client(3)) as client:
        with pytest.raises((tailcut.DeadlineExceeded, tailcut.Unreachable)):
            client.call(b"to an open server")
    assert not heard


def test_what_a_client_s_seal_drops_is_counted(group):
    def drops(client):
        counted = client.metrics()
        return counted["seal_unsealed"] + counted["seal_forged"] + counted["seal_unknown_keys"]

    def echo(end):
        while True:
            packet, peer = end.recvfrom(2048)
            if peer == other.getsockname():
                return
            end.sendto(packet, peer)

    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for bound in [end, other]:
            bound.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=echo, args=(end,))
        thread.start()
        target = "127.0.0.1:%d" % end.getsockname()[1]
        with tailcut.Client(target, timeout=0.05, seal=group.client(3)) as client:
            assert drops(client) == 0
            # Until what comes back has come, whatever else the machine does.
            while drops(client) == 0:
                with pytest.raises(tailcut.Error):
                    client.call(b"to a mirror")
        other.sendto(b"", end.getsockname())
        thread.join()


async def async_client(target, **options):
    return tailcut.AsyncClient(target, **options)


OPENERS = [
    (tailcut.Client, "client"),
    (lambda *arguments, **options: asyncio.run(async_client(*arguments, **options)), "client"),
    (tailcut.Server, "server"),
    (tailcut.AsyncServer, "server"),
]


@pytest.mark.parametrize("opener,role", OPENERS)
def test_keys_that_cannot_be_used_are_told(group, tmp_path, opener, role):
    others = {
        "client": (group.servers, "these are a server's keys: a client has keys of its own"),
        "server": (group.client(3), "these are a client's keys, with which nobody can serve"),
    }
    readable = tmp_path / "readable"
    readable.write_text(group.servers.read_text())
    readable.chmod(0o644)
    garbage = tmp_path / "garbage"
    garbage.touch(mode=0o600)
    for seal, text in [
        (tmp_path / "missing", f"cannot read the keys from {tmp_path}/missing"),
        (readable, f"others may read the keys in {readable}: chmod 600"),
        (garbage, str(garbage)),
        (group.router(), "these are a router's keys"),
        others[role],
    ]:
        with pytest.raises(tailcut.OpenError, match=text):
            opener("127.0.0.1:0" if role == "server" else "127.0.0.1:9", seal=seal)
    with pytest.raises(TypeError, match="'seal'"):
        opener("127.0.0.1:0", seal=5)


@pytest.mark.parametrize("server", [tailcut.Server, tailcut.AsyncServer])
def test_policies_that_cannot_be_used_are_told(group, tmp_path, server):
    for access, text in [
        (group.access("allow everybody *"), "line 2 of the policy: `everybody` names no client"),
        (tmp_path / "missing", f"{tmp_path}/missing"),
    ]:
        with pytest.raises(tailcut.OpenError, match=text):
            server("127.0.0.1:0", seal=group.servers, access=access)
    with pytest.raises(tailcut.OpenError, match="give the server keys too"):
        server("127.0.0.1:0", access=group.access("allow 3 *"))


def test_homa_is_sealed_too(serving, group):
    target = serving(identity, of_requests=True, transport="homa", seal=group.servers)
    with tailcut.Client(target, timeout=PATIENCE, transport="homa", seal=group.client(3)) as client:
        assert client.call(b"who?") == b"3"
        assert client.call_many([b"who?"] * 100) == [b"3"] * 100


def test_a_client_s_arguments_are_told():
    signature = inspect.signature(tailcut.Client)
    of_asyncio = inspect.signature(tailcut.AsyncClient)
    named = {name: parameter.default for name, parameter in signature.parameters.items()}
    assert named == {name: parameter.default for name, parameter in of_asyncio.parameters.items()}
    with pytest.raises(TypeError, match="a client has no keyword argument 'sael'"):
        tailcut.Client("127.0.0.1:9", sael=None)
    with pytest.raises(TypeError, match="argument 'timeout': "):
        tailcut.Client("127.0.0.1:9", timeout="1")


def test_a_child_has_its_own_thread_renew_its_keys(serving, script, group):
    target = serving(identity, of_requests=True, seal=group.servers)
    out, err = script(
        """
        import os, pathlib, sys, time, tailcut
        def renewers():
            tasks = pathlib.Path("/proc/self/task").glob("*/comm")
            return [task.read_text() for task in tasks].count("tailcut-keys\\n")
        def call():
            with tailcut.Client(sys.argv[1], timeout=30, seal=sys.argv[2]) as client:
                assert client.call(b"") == b"3"
                # A thread names itself as it begins to run, which may be after the call.
                end = time.monotonic() + 30
                while not renewers() and time.monotonic() < end:
                    time.sleep(0.001)
                return renewers()
        # What has renewed keys waits for others, and a child has none of it.
        for _ in range(5):
            call()
        child = os.fork()
        if child == 0:
            os._exit(0 if call() == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print("parent is well")
        """,
        target,
        str(group.client(3)),
    )
    assert out == "parent is well\n" and not err
