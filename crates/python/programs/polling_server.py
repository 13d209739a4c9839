"""A server that polls and sends back what comes. It prints its address; Ctrl-C ends it."""

import signal

import tailcut


def main():
    # It is ignored where a shell has begun this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    server = tailcut.Server("127.0.0.1:0", busy_poll=True)
    print(server.address, flush=True)
    try:
        server.serve(lambda data: data)
    except KeyboardInterrupt:
        pass


main()
