"""Forks, signals and the end of the interpreter."""

import ast
import inspect
from pathlib import Path

import tailcut
from tailcut import _core

STUBS = Path(tailcut.__file__).with_name("_core.pyi")


def test_a_child_uses_nothing_of_its_parents(serving, script):
    target = serving(bytes.upper)
    out, err = script(
        """
        import asyncio, os, sys, tailcut
        client = tailcut.Client(sys.argv[1], timeout=30)
        loop = asyncio.new_event_loop()
        async def open():
            return tailcut.AsyncClient(sys.argv[1], timeout=30)
        async def call(request):
            return await calls.call(request)
        calls = loop.run_until_complete(open())
        assert client.call(b"a") == b"A"
        assert loop.run_until_complete(call(b"b")) == b"B"
        child = os.fork()
        if child == 0:
            for misuse in [lambda: client.call(b"c"), lambda: calls.call(b"d"), client.metrics]:
                try:
                    misuse()
                    os._exit(1)
                except tailcut.Closed as error:
                    assert "fork" in str(error)
            with tailcut.Client(sys.argv[1], timeout=30) as own:
                assert own.call(b"e") == b"E"
            client.close()
            del client
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        assert client.call(b"f") == b"F"
        assert loop.run_until_complete(call(b"g")) == b"G"
        calls.close()
        loop.close()
        print("parent is well")
        """,
        target,
    )
    assert out == "parent is well\n" and not err


def test_ctrl_c_ends_a_server(script):
    script(
        """
        import os, signal, tailcut, threading
        server = tailcut.Server("127.0.0.1:0")
        def interrupt():
            with tailcut.Client(server.address, timeout=30) as client:
                client.call(b"")
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            server.serve(bytes.upper)
        except KeyboardInterrupt:
            raise SystemExit(7)
        """,
        status=7,
    )


def test_the_interpreter_ends_beside_servers_and_calls_of_daemons(script):
    out, err = script(
        """
        import socket, tailcut, threading
        deaf = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        deaf.bind(("127.0.0.1", 0))
        def start(target, *arguments):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        servers = [tailcut.Server("127.0.0.1:0") for _ in range(4)]
        for server in servers:
            start(server.serve, bytes.upper)
        for server in servers:
            client = tailcut.Client(server.address, timeout=30)
            assert client.call(b"a") == b"A"
            silent = tailcut.Client("127.0.0.1:%d" % deaf.getsockname()[1])
            start(lambda: silent.call(b"", timeout=30))
        print("ends")
        """
    )
    assert out == "ends\n" and not err


def test_the_interpreter_ends_beside_asyncio(script):
    out, err = script(
        """
        import asyncio, socket, tailcut
        deaf = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        deaf.bind(("127.0.0.1", 0))
        async def main():
            global server, client, silent
            server = tailcut.AsyncServer("127.0.0.1:0")
            serving = asyncio.ensure_future(server.serve(bytes.upper))
            client = tailcut.AsyncClient(server.address, timeout=30)
            assert await client.call(b"a") == b"A"
            silent = tailcut.AsyncClient("127.0.0.1:%d" % deaf.getsockname()[1], timeout=30)
            silent.call(b"left alone")
        asyncio.run(main())
        print("ends")
        """
    )
    assert out == "ends\n" and not err


def test_the_stubs_tell_what_there_is():
    names = {name for name in dir(_core) if not name.startswith("__")}
    declared = {}
    for node in ast.parse(STUBS.read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            declared[node.name] = node
    assert set(declared) == names
    for name, node in declared.items():
        if isinstance(node, ast.ClassDef):
            check_class(getattr(_core, name), node)


def check_class(kind, node):
    members = {name for name in vars(kind) if not name.startswith("__")}
    functions = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    assert {name for name in functions if not name.startswith("__")} == members, kind
    for name, function in functions.items():
        is_property = any(getattr(item, "id", "") == "property" for item in function.decorator_list)
        if is_property or name.startswith("__"):
            continue
        arguments = function.args
        declared = [argument.arg for argument in arguments.args + arguments.kwonlyargs]
        assert declared == list(inspect.signature(getattr(kind, name)).parameters), (kind, name)
