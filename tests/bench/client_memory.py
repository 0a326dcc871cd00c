#!/usr/bin/env python3
"""Measures how much a Python trainer's private memory (smaps_rollup) grows: the maximum over 200 batches.

  client_memory.py CONFIG STREAM [--set KEY=VALUE]...      starts its own server
"""
import argparse

import headrace


def private_mb() -> float:
    with open("/proc/self/smaps_rollup") as lines:
        kb = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
    return kb / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("stream")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    with headrace.serve(arguments.config, set=settings) as server:
        for zero_copy in (True, False):
            before = private_mb()
            with headrace.Loader(server.address, stream=arguments.stream, zero_copy=zero_copy, client=f"memory-{zero_copy}") as loader:
                batches, size, most = 0, 0, 0.0
                while batches < 200:
                    for batch in loader:
                        batches += 1
                        size = max(size, sum(field.nbytes for field in batch))
                        most = max(most, private_mb() - before)
                print(f"zero_copy={zero_copy}: {most:.1f} MB at most over {batches} batches of {size / 1e6:.1f} MB each")


if __name__ == "__main__":
    main()
