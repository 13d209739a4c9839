"""What the page for users shows is true."""

import threading


def test_a_server_and_a_client(page):
    opening, _, serving = page[0].rpartition("server.serve")
    names = {}
    exec(opening.replace(":8000", ":0"), names)
    thread = threading.Thread(target=exec, args=("server.serve" + serving, names))
    thread.start()
    exec(page[1].replace("127.0.0.1:8000", names["server"].address), names)
    names["server"].stop()
    thread.join()
    assert names["replies"] == [b"ONE", b"TWO", b"THREE"]


def test_asyncio(page, script):
    out, err = script(page[2])
    assert out == f"{[b'%d' % number for number in range(1000)]}\n" and not err
