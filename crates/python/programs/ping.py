"""The median round trip of a call of 32 bytes, polling, in nanoseconds: ping HOST:PORT
NANOSECONDS."""

import sys
from time import perf_counter_ns

import tailcut


def main():
    target, slice_ns = sys.argv[1], int(sys.argv[2])
    request = bytes([1]) * 32
    round_trips = []
    with tailcut.Client(target, busy_poll=True) as client:
        now = perf_counter_ns()
        end = now + slice_ns
        while now < end:
            client.call(request)
            after = perf_counter_ns()
            round_trips.append(after - now)
            now = after
    round_trips.sort()
    print(round_trips[len(round_trips) // 2])


main()
