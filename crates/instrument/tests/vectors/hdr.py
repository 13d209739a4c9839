"""Writes hdr.json: a histogram as the Python package hdrhistogram (0.10.8) writes it, and what it reads from it.

    pip install hdrhistogram
    python crates/cli/tests/vectors/hdr.py > crates/cli/tests/vectors/hdr.json
    python crates/cli/tests/vectors/hdr.py FILE.hdr

With a log that `tailcut measure --hdr` wrote, it prints what that package reads from it.
"""

import json
import math
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

# Of 10,000 samples each is at a whole rank, so that no convention of rounding matters.
SHARES = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1]


def write():
    histogram = HdrHistogram(1, 100_000_000_000, 3)
    # An exponential of 15 us on 20 us, 9,997 samples of it, and three far away.
    count = 9_997
    for index in range(count):
        histogram.record_value(int(20_000 - 15_000 * math.log(1 - (index + 0.5) / count)))
    for value in (1, 250_000_000, 99_000_000_000):
        histogram.record_value(value)
    values = [[share, histogram.get_value_at_percentile(100 * share)] for share in SHARES]
    json.dump(
        {"histogram": histogram.encode().decode(), "count": histogram.get_total_count(), "values_ns": values},
        sys.stdout,
        indent=1,
    )
    print()


def read(path):
    reader = HistogramLogReader(path, HdrHistogram(1, 100_000_000_000, 3))
    while (histogram := reader.get_next_interval_histogram()) is not None:
        values = [histogram.get_value_at_percentile(100 * share) for share in SHARES]
        start, end = histogram.get_start_time_stamp(), histogram.get_end_time_stamp()
        print(histogram.get_tag(), start, end - start, histogram.get_total_count(), *values)


if len(sys.argv) > 1:
    read(sys.argv[1])
else:
    write()
