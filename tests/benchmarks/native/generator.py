"""One run of the load generator, and the processor time that it and the servers use in the measured time."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.processor import machine_seconds, process_seconds

GENERATOR_NAME: Final = "generator"


class LoadError(Exception):
    """An answer was not a success, or an operation was not answered: the row has no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load that the generator is asked for."""

    protocol: str
    operation: str
    targets: Sequence[tuple[str, str]]
    """Addresses and queues that the connections take in turn."""
    connections: int
    in_flight: int
    body: int
    seconds: float
    warm_up: float = 1.0
    operations: int = 0
    """Operations after which it ends early, 0 for no limit."""
    key: str = ""
    """``ID:SECRET`` of the signatures of SQS."""
    group: str = ""
    """Group of the messages sent to SQS."""

    def arguments(self) -> list[str]:
        """Return the arguments of the program."""
        options = {
            "protocol": self.protocol,
            "operation": self.operation,
            "targets": ",".join(f"{address}/{queue}" for address, queue in self.targets),
            "connections": self.connections,
            "in-flight": self.in_flight,
            "body": self.body,
            "seconds": self.seconds,
            "warm-up": self.warm_up,
            "operations": self.operations,
            "key": self.key,
            "group": self.group,
        }
        return [f"-{name}={value}" for name, value in options.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of one run.

    Attributes:
        operations: operations that ended in the measured time.
        all_operations: operations that ended at any time.
        empty: operations that found no message.
        seconds: the measured time.
        processor_s: processor seconds in the measured time by process, the generator included.
        elsewhere: the part of one processor that everything else on the machine used.
    """

    operations: int
    all_operations: int
    empty: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    processor_s: Mapping[str, float]
    elsewhere: float

    @property
    def rate(self) -> float:
        """Return the operations per second."""
        return self.operations / self.seconds


def run(program: Path, load: Load, servers: Mapping[str, int]) -> Run:
    """Run the generator and measure the servers, which are given by name and process id.

    Raises:
        LoadError: the generator failed.
    """
    with subprocess.Popen(
        [program, *load.arguments()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        watched = {GENERATOR_NAME: process.pid, **servers}
        try:
            before = _spent(watched) if process.stdout.readline() == "begin\n" else None
            after = _spent(watched) if process.stdout.readline() == "end\n" else None
            output = process.stdout.read()
            errors = process.stderr.read()
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0 or before is None or after is None:
        raise LoadError(errors.strip() or f"the generator ended with {process.returncode}")
    spent = {name: after[name] - before[name] for name in after}
    elapsed_s, machine_s = spent.pop(_CLOCK), spent.pop(_MACHINE)
    return parse(output, spent, max(machine_s - sum(spent.values()), 0.0) / elapsed_s)


_CLOCK: Final = "/clock"
_MACHINE: Final = "/machine"


def _spent(watched: Mapping[str, int]) -> dict[str, float]:
    """Return the processor seconds of the processes and of the machine so far, and the time."""
    spent = dict(zip(watched, process_seconds(watched.values()), strict=True))
    return {**spent, _MACHINE: machine_seconds(), _CLOCK: time.monotonic()}


def parse(output: str, processor_s: Mapping[str, float], elsewhere: float) -> Run:
    """Return the result from the line that the generator printed.

    Raises:
        LoadError: no operation ended in the measured time.
    """
    found = json.loads(output)
    if not found["operations"] or found["seconds"] <= 0:
        raise LoadError(f"no operation ended in the measured time, {found['all_operations']} in all")
    return Run(
        operations=found["operations"],
        all_operations=found["all_operations"],
        empty=found["empty"],
        seconds=found["seconds"],
        p50_ms=found["p50_us"] / 1e3,
        p99_ms=found["p99_us"] / 1e3,
        p999_ms=found["p999_us"] / 1e3,
        processor_s=dict(processor_s),
        elsewhere=elsewhere,
    )
