"""One access to the log: outside the core no code writes a command literally, or counts to one of its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster.core import Op
from lmqcluster.core.log import command_layout as layout

ROOT = Path(__file__).parents[3] / "lmqcluster"
OUTSIDE = ("node", "protocols", "testing", "server.py")
CONVICTED = """
command = [Op.PURGE, queue, 0]
sent = Group([op, name, number], [ticket], sink)
asked = (Op.PULL_LEASE, 0, True)
queue = group.command[1]
rest = command[3:]
op, *_ = group.command
"""
ALLOWED = """
PUSHES = (Op.PUSH, Op.PUSH_ITEMS)
NAMES = {Op.PURGE: "purge"}
queue = group.command[QUEUE]
op = command[layout.OP]
verb = Verb(Op.GIVE_BACK, more)
"""


def offences(tree: ast.AST) -> Iterator[str]:
    """Yield the code that a file should leave to `core.command_layout`."""
    for node in ast.walk(tree):
        is_literal = isinstance(node, ast.List | ast.Tuple) and _is_command(node)
        is_read = isinstance(node, ast.Subscript) and _names_command(node.value) and _is_number(node.slice)
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
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "command"


def _is_number(node: ast.expr) -> bool:
    bounds = (node.lower, node.upper) if isinstance(node, ast.Slice) else (node,)
    return any(isinstance(one, ast.Constant | ast.UnaryOp) for one in bounds)


def _files() -> list[Path]:
    return [
        path
        for place in OUTSIDE
        for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]


def test_commands_are_made_and_read_by_the_layout_alone() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{one}" for path in _files() for one in offences(ast.parse(path.read_text("utf-8")))
    }
    assert not found


@pytest.mark.parametrize("line", CONVICTED.split("\n")[1:-1])
def test_a_literal_command_is_found(line: str) -> None:
    assert list(offences(ast.parse(line)))


def test_sets_names_and_named_positions_are_accepted() -> None:
    assert not list(offences(ast.parse(ALLOWED)))


def test_every_operation_has_a_maker() -> None:
    source = ast.parse(Path(layout.__file__).read_text("utf-8"))
    lists = (node.elts for node in ast.walk(source) if isinstance(node, ast.List | ast.Tuple) and node.elts)
    made = {elements[0].attr for elements in lists if isinstance(elements[0], ast.Attribute) and _is_op(elements[0])}
    settled = {Op.ACK, Op.NACK, Op.EXTEND, Op.PUT_BACK, Op.GIVE_BACK, Op.EXTEND_BY}
    assert made | {op.name for op in settled} == {op.name for op in Op}
