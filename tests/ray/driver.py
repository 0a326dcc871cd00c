"""A driver of its own process: python driver.py CLUSTER CONFIG. It starts servers, prints an address, and ends as its input says."""

from __future__ import annotations

import sys

import headrace.ray
import ray


def main() -> None:
    ray.init(address=sys.argv[1], log_to_driver=False)
    servers = headrace.ray.start(sys.argv[2], trainers="trainer", makers=(2, 2))
    ((node, address),) = servers.addresses.items()
    print("address", address, flush=True)
    for line in sys.stdin:
        if line == "made\n":
            print("made", servers.stats()[node].get("made", 0), flush=True)
        elif line == "stop\n":
            servers.stop()
            print("stopped", flush=True)
        else:
            break


if __name__ == "__main__":
    main()
