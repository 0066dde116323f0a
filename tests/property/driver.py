"""Drives a machine in tests: numbers the batches, keeps the clock, names the commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from lmqcluster.core import Fault, Machine, Op
from lmqcluster.core.messages.message import loaded

__all__ = [
    "SECOND",
    "UNDO",
    "Driver",
    "bodies",
    "compile_pattern",
    "copied",
    "counters",
    "numbers",
    "over_the_wire",
    "records",
    "restored",
    "written",
]

SECOND = 1_000_000
UNDO = (0, 0, True)
"""The last fields of a nack that undoes deliveries."""


def compile_pattern(pattern: bytes) -> Callable[[bytes], bool]:
    """Return the regular expression engine of the tests: an unanchored search."""
    try:
        search = re.compile(pattern).search
    except re.error as exc:
        raise ValueError(str(exc)) from exc
    return lambda name: search(name) is not None


def over_the_wire(value: Any) -> Any:
    """Return the value as read from a log or a snapshot file: tuples are lists."""
    return msgpack.unpackb(msgpack.packb(value), strict_map_key=False)


def written(machine: Machine) -> list[bytes]:
    """Return the records of the machine's snapshot as written to a file."""
    return [msgpack.packb(record) for record in machine.snapshot()]


def records(machine: Machine) -> list[Any]:
    """Return the machine's snapshot as read from a file."""
    return [over_the_wire(record) for record in machine.snapshot()]


def restored(snapshot: Iterable[bytes]) -> Machine:
    """Return the machine restored from the written records of a snapshot."""
    return Machine.restore(compile_pattern, [msgpack.unpackb(record, strict_map_key=False) for record in snapshot])


def copied(machine: Machine) -> Machine:
    """Return a machine restored from a snapshot of this one."""
    return restored(written(machine))


def bodies(deliveries: Iterable[Any]) -> list[Any]:
    """Return the contents of a pull's deliveries; a compound message shows as the list of its parts' contents."""
    return [
        content if isinstance(content, bytes) else [part.content for part in content]
        for content in (loaded(message.content) for _, _, _, message in deliveries)
    ]


def numbers(deliveries: Iterable[Any]) -> list[int]:
    """Return the delivery numbers of a pull."""
    return [number for _, number, _, _ in deliveries]


class Driver:
    """A machine fed by one node, one command a batch. Time does not pass unless a test advances it."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = Machine(compile_pattern) if machine is None else machine
        self.now_us = max(1_000 * SECOND, self.machine.state.now_us)
        self.origin = b"node-1"
        self.incarnation = 1
        self.sequence = self.machine.state.node_sequences.last_sequence(self.origin, 1)
        self.ready: list[bytes] = []

    def wait(self, seconds: float) -> None:
        """Advance log time."""
        self.now_us += round(seconds * SECOND)

    def batch(self, *commands: list[Any]) -> list[Any]:
        """Apply the commands as one batch; `Fault` results are returned as they are."""
        self.sequence += 1
        applied = self.machine.apply(self.now_us, self.origin, self.incarnation, self.sequence, list(commands))
        assert applied.status == "applied"
        self.ready = [queue.name for queue in applied.ready]
        return applied.results

    def do(self, *command: Any) -> Any:
        """Apply one command, which must succeed."""
        result = self.batch(list(command))[0]
        assert not isinstance(result, Fault), result
        return result

    def push(self, queue: bytes, *contents: bytes, content_type: bytes | None = None) -> list[int]:
        return self.do(Op.PUSH, queue, content_type, list(contents), None, 0)

    def produce(self, queue: bytes, producer: bytes, first: int, *contents: bytes) -> list[int]:
        return self.do(Op.PUSH, queue, None, list(contents), producer, first)

    def push_item(
        self,
        queue: bytes,
        content: bytes,
        content_type: bytes | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
        key: bytes | None = None,
    ) -> int:
        row = [content, content_type, b"", key, [], [list(header) for header in headers]]
        return self.do(Op.PUSH_ROWS, queue, [row])[0][0]

    def tick(self, batches: int = 1) -> None:
        """Apply batches without commands."""
        for _ in range(batches):
            self.batch()

    def matching(self, pattern: bytes) -> list[bytes]:
        """Return the names of the queues that a pattern finds, sorted; a node names them in its commands."""
        matches = compile_pattern(pattern)
        return sorted(name for name in self.machine.state.queues if matches(name))

    def push_each(self, pattern: bytes, content: bytes) -> list[tuple[bytes, int]]:
        return self.do(Op.PUSH_EACH, self.matching(pattern), [content, None, b"", None])

    def pull(self, queue: bytes, count: int = 1) -> list[Any]:
        return self.do(Op.PULL, queue, count)

    def pull_one(self, queue: bytes) -> Any:
        """Return the one delivery of a pull that must find a message: (queue, number, retry, message)."""
        (delivery,) = self.pull(queue)
        return delivery

    def drain(self, queue: bytes) -> list[Any]:
        """Return the contents of all messages that can be pulled now, in order. Needs a positive timeout."""
        return bodies(self.pull(queue, 1000))

    def pull_first(self, pattern: bytes, count: int = 1) -> list[Any]:
        return self.do(Op.PULL_FIRST, self.matching(pattern), count)

    def ack(self, queue: bytes, *given: int) -> list[bool] | None:
        return self.do(Op.ACK, queue, list(given))

    def nack(self, queue: bytes, *given: int) -> list[bool] | None:
        return self.do(Op.NACK, queue, list(given))

    def extend(self, queue: bytes, *given: int) -> list[bool] | None:
        return self.do(Op.EXTEND, queue, list(given))

    def put_back(self, queue: bytes, *given: int) -> list[bool] | None:
        return self.do(Op.NACK, queue, list(given), *UNDO)

    def set(self, queue: bytes, **properties: Any) -> None:
        """Set own properties; hooks as [[point, [[module, [argument]]]]]."""
        self.do(Op.SET_PROPERTIES, queue, _pairs(properties))

    def clear(self, queue: bytes) -> None:
        self.do(Op.SET_PROPERTIES, queue, [], False, True)

    def defaults(self, *rules: tuple[bytes, dict[str, Any]]) -> None:
        self.do(Op.SET_DEFAULTS, [[pattern, _pairs(properties)] for pattern, properties in rules])

    def delete(self, queue: bytes) -> bool:
        return self.do(Op.DELETE, queue)

    def size(self, queue: bytes) -> int:
        return len(self.machine.state.queues[queue])


def _pairs(properties: dict[str, Any]) -> list[list[Any]]:
    return [[name.encode(), value] for name, value in properties.items()]


def counters(machine: Machine) -> dict[str, int]:
    """Return the sums of the queues' counters, those of deleted queues included."""
    queues = machine.state.queues.values()
    return {
        name: retired + sum(getattr(queue.counters, name) for queue in queues)
        for name, retired in machine.state.retired.items()
    }
