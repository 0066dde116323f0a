"""``python -m tests.fuzz --minutes 30 [--seed S] [--tokens]``: exit status 0 without problems, else 1."""

from __future__ import annotations

import argparse
import sys
import time

from .campaign import Settings, run


def main() -> int:
    """Run one campaign, or two, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="duration for each kind of cluster")
    parser.add_argument("--seed", type=int, default=None, help="repeat the input of a run (default: from the clock)")
    parser.add_argument("--tokens", action="store_true", help="a cluster that requires tokens")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--inputs", type=int, default=None, help="end after this many inputs")
    parser.add_argument("--senders", type=int, default=6, help="number of concurrent senders")
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    settings = Settings(
        seed=seed,
        seconds=arguments.minutes * 60,
        tokens=arguments.tokens,
        senders=arguments.senders,
        inputs_max=arguments.inputs,
        first=arguments.first,
    )
    report = run(settings)
    if report.elections:
        report.problems.append(f"{report.elections} elections took place, as may happen on a busy machine")
    print(report.text())
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
