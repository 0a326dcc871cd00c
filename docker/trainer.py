"""The smallest trainer: reads a stream for ever (or for some batches) and says how fast, and how much of the time it waited."""

import argparse
import time

import headrace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default=None, help="the server's directory (default: HEADRACE_ADDRESS)")
    parser.add_argument("--stream", default="train")
    parser.add_argument("--batches", type=int, default=None, help="stop after that many (default: never)")
    arguments = parser.parse_args()

    loader = headrace.Loader(arguments.address, stream=arguments.stream)
    seen = rows = 0
    waited = 0.0
    reported = began = time.monotonic()
    epoch = 0
    while arguments.batches is None or seen < arguments.batches:
        asked = time.monotonic()
        for batch in loader:
            now = time.monotonic()
            waited += now - asked
            seen += 1
            rows += len(batch[0])
            if now - reported > 10 or seen == arguments.batches:
                rate = rows / (now - began)
                print(f"epoch {epoch}: {rate:.0f} images/s, waited {waited / (now - began):.0%}", flush=True)
                reported = now
            if seen == arguments.batches:
                break
            asked = time.monotonic()
        epoch += 1


if __name__ == "__main__":
    main()
