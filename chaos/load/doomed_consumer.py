"""A consumer that pulls messages, never acks, and waits to be killed: ``doomed_consumer.py ADDRESSES QUEUE COUNT``.

It writes every message to standard output, with the fields of a history, as soon as it arrives.
"""

from __future__ import annotations

import json
import sys
import time

from lmqcluster import Client


def main() -> None:
    """Run until killed."""
    addresses, queue, count = sys.argv[1:]
    with Client(addresses, discover=False) as client:
        for _ in range(int(count)):
            begin_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            message = client.pull(queue, timeout=None)
            end_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            if message is not None:
                seen = {"value": message.content.decode().rstrip("."), "receipt": message.id, "retry": message.retry}
                print(json.dumps({"time_us": begin_us, "end_us": end_us, **seen}), flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
