"""The records of `core/log/commands.py` are the only access to the log: no other code writes or reads fields by position."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.log import commands
from lmqcluster.core.log.commands import Command, decode
from tests.property.driver import compile_pattern

ROOT = Path(__file__).parents[3] / "lmqcluster"
OUTSIDE = ("node", "protocols", "testing", "replication/offline", "server.py")
CODES_MAX = 56
CONVICTED = """
command = [Op.PURGE, queue, 0]
sent = PendingCommand([op, name, number], [ticket], sink)
queue = encoded[1]
rest = command[3:]
op, *_ = encoded
"""
ALLOWED = """
PULLS = (Op.PULL, Op.POLL)
NAMES = {Op.PURGE: "purge"}
op = encoded[0]
"""
RECORDS = [commands._RECORDS[op] for op in Op]


def offences(tree: ast.AST) -> Iterator[str]:
    """Yield the code that a file should leave to the records."""
    for node in ast.walk(tree):
        is_literal = isinstance(node, ast.List | ast.Tuple) and _is_command(node)
        is_read = isinstance(node, ast.Subscript) and _names_command(node.value) and _is_field(node.slice)
        is_split = (
            isinstance(node, ast.Assign) and _names_command(node.value) and isinstance(node.targets[0], ast.Tuple)
        )
        if is_literal or is_read or is_split:
            yield f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


def _is_command(node: ast.List | ast.Tuple) -> bool:
    if not node.elts or isinstance(node.ctx, ast.Store):
        return False
    first_is_op = _is_op(node.elts[0]) or (isinstance(node.elts[0], ast.Name) and node.elts[0].id == "op")
    # A set of operations is not a command; a list of one may be.
    return first_is_op and not (isinstance(node, ast.Tuple) and all(map(_is_op, node.elts)))


def _is_op(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Op"


def _names_command(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("command", "encoded")


def _is_field(node: ast.expr) -> bool:
    bounds = (node.lower, node.upper) if isinstance(node, ast.Slice) else (node,)
    return any(isinstance(one, ast.Constant) and one.value != 0 for one in bounds)


def _files() -> list[Path]:
    return [
        path
        for place in OUTSIDE
        for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]


def test_commands_are_written_and_read_by_their_records_alone() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{one}" for path in _files() for one in offences(ast.parse(path.read_text("utf-8")))
    }
    assert not found


@pytest.mark.parametrize("line", CONVICTED.split("\n")[1:-1])
def test_a_literal_command_is_found(line: str) -> None:
    assert list(offences(ast.parse(line)))


def test_sets_names_and_codes_are_accepted() -> None:
    assert not list(offences(ast.parse(ALLOWED)))


def test_every_code_has_one_record_and_one_handler() -> None:
    assert {record.op for record in RECORDS} == set(Op) == Machine(compile_pattern)._handlers.keys()
    assert len(Op) <= CODES_MAX


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.op.name)
def test_a_command_survives_the_log(record: type[Command]) -> None:
    """Every field is written and read in its place; fields with defaults may be absent."""
    assert record.__doc__
    fields = dataclasses.fields(record)  # type: ignore[arg-type]
    command = record(*[b"%d" % number for number in range(len(fields))])
    encoded = msgpack.unpackb(msgpack.packb(command.encode()))
    assert encoded == [record.op, *[b"%d" % number for number in range(len(fields))]]
    assert decode(encoded) == command
    is_needed = [one.default is one.default_factory is dataclasses.MISSING for one in fields]
    required = [b"%d" % number for number in range(sum(is_needed))]
    assert decode([record.op, *required]) == record(*required)
    assert "RESULT" in record.__doc__.upper() or record.op.name in (
        "PULL_FIRST",
        "PULL_IN_SESSION",
        "POLL",
        "NACK",
        "EXTEND",
    )
