"""``python -m tests.benchmarks.core``: processor time of push, pull and done in the state machine of one replica.

Commands come in batches, as entries of the log: each for one message, or, as nodes send them, one for all messages of a
queue that arrive together. With ``--against``, another checkout of this project alternates with this one, each turn in
a separate process, and the fastest turn of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lmqcluster.core import State

QUEUE, BODY, ORIGIN = b"q", b"x" * 100, b"node"
ROUNDS, BATCH = 3_000, 32


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.core", description=__doc__)
    options.add_argument("--against", metavar="DIR", help="another checkout")
    options.add_argument("--turns", type=int, default=5, metavar="N", help="of each (%(default)s)")
    options.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    return options


Commands = list[list[object]]


def pushes(op: int, size: int) -> Commands:
    """Return commands that push a batch, with `size` messages each."""
    return [[op, QUEUE, None, [BODY] * size, None, 0] for _ in range(BATCH // size)]


def one_turn() -> dict[str, float]:
    """Return nanoseconds of processor time per operation."""
    from lmqcluster.core import Machine, Op

    machine = Machine(lambda pattern: lambda name: False)
    sequence = 0

    def apply(commands: Commands) -> list[object]:
        nonlocal sequence
        sequence += 1
        applied = machine.apply(1_700_000_000_000_000 + sequence, ORIGIN, 1, sequence, commands)
        if applied.status != "applied":
            raise AssertionError(applied)
        return list(applied.results)

    def timed(commands: Commands) -> tuple[list[object], float]:
        began_s = time.process_time()
        results = apply(commands)
        return results, time.process_time() - began_s

    apply([[Op.UPGRADE, getattr(State, "VERSION_MAX", 3)]])
    spent: dict[str, float] = {}
    for kind, size in (("one by one", 1), ("together", BATCH)):
        for _ in range(ROUNDS):
            _, pushed_s = timed(pushes(Op.PUSH, size))
            deliveries, pulled_s = timed([[Op.PULL, QUEUE, size] for _ in range(BATCH // size)])
            acks: Commands = [[Op.ACK, QUEUE, [one[1] for one in found]] for found in deliveries]  # type: ignore[attr-defined]
            results, done_s = timed(acks)
            if any(one != [True] * size for one in results):
                raise AssertionError(results[:5])
            for verb, seconds in (("push", pushed_s), ("pull", pulled_s), ("done", done_s)):
                name = f"{verb} {kind}"
                spent[name] = spent.get(name, 0.0) + seconds
    return {name: 1e9 * seconds / (ROUNDS * BATCH) for name, seconds in spent.items()}


def _run(checkout: Path) -> dict[str, float]:
    """Run a turn in a separate process, with the modules of that checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--once"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    options = parser().parse_args(arguments)
    if options.once:
        print(json.dumps(one_turn()))
        return 0
    checkouts = [Path(__file__).parents[2]] + ([Path(options.against).resolve()] if options.against else [])
    turns: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    for _ in range(options.turns):
        for checkout in checkouts:
            turns[checkout].append(_run(checkout))
    for name in turns[checkouts[0]][0]:
        quietest = {checkout.name: min(one[name] for one in found) for checkout, found in turns.items()}
        print(f"{name}: " + ", ".join(f"{checkout} {spent_ns:.0f} ns" for checkout, spent_ns in quietest.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
