"""A raised error keeps the frames that it leaves. So no code may keep a raised error: frames hold requests.

A frame whose local variable refers to the error that has left it stays, with everything it holds, until the garbage
collector finds the two. An error in an attribute that is raised repeatedly keeps all frames that it ever left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .test_structure import trees

KEEPING = {"append", "add", "put", "put_nowait", "set_exception", "set_result", "setdefault", "partial"}
"""Calls that keep an argument."""
EXCEPTIONS = {
    "lmqcluster/client/transport/calls.py fail": "the caller's future is all that refers to it",
    "lmqcluster/client/blocking/client.py finished": "the caller's future is all that refers to it",
    "lmqcluster/replication/recovery/snapshot_keeper.py have_read": "a disk fails, and no client can cause that",
    "lmqcluster/replication/recovery/snapshot_keeper.py _give_up": "it comes from the writing thread, once per snapshot",
}

SHORT_LIVED = ("lmqcluster/spark/", "lmqcluster/testing/", "cli/", "chaos/")
"""Processes that end with an error, or soon after it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def faults(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Yield function, line and text of code that keeps an error."""
    for function in ast.walk(tree):
        if isinstance(function, Function):
            for node, caught, deleted in _statements(function.body, frozenset(), frozenset()):
                yield from ((function.name, line, text) for line, text in _keeps(node, caught, deleted))


def _statements(
    body: list[ast.stmt], caught: frozenset[str], deleted: frozenset[str]
) -> Iterator[tuple[ast.AST, frozenset[str], frozenset[str]]]:
    """Yield each simple statement and expression with the errors that are caught there, and names that are
    deleted after it.
    """
    for one in body:
        if isinstance(one, Function | ast.ClassDef):
            continue
        if isinstance(one, ast.Try):
            ends = {
                target.id
                for last in one.finalbody
                if isinstance(last, ast.Delete)
                for target in last.targets
                if isinstance(target, ast.Name)
            }
            within = deleted | ends
            yield from _statements(one.body, caught, within)
            yield from _statements(one.orelse, caught, within)
            for handler in one.handlers:
                more = frozenset() if handler.name is None else {handler.name}
                yield from _statements(handler.body, caught | more, within)
            yield from _statements(one.finalbody, caught, deleted)
            continue
        blocks = [value for _name, value in ast.iter_fields(one) if _is_block(value)]
        if blocks:
            for block in blocks:
                yield from _statements(block, caught, deleted)
            for case in getattr(one, "cases", []):
                yield from _statements(case.body, caught, deleted)
            continue
        yield one, caught, deleted


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def _keeps(node: ast.AST, caught: frozenset[str], deleted: frozenset[str]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Raise) and node.exc is not None and not _is_fresh(node.exc, caught | deleted):
        yield node.lineno, f"{ast.unparse(node)}: raise a fresh error, for example error.again()"
    for part in ast.walk(node):
        if isinstance(part, ast.Assign | ast.AnnAssign | ast.NamedExpr) and part.value is not None:
            kept = [part.value]
        elif isinstance(part, ast.Call) and _name_of(part.func) in KEEPING:
            kept = [*part.args, *(keyword.value for keyword in part.keywords)]
            if _name_of(part.func) == "set_exception" and not isinstance(part.args[0], ast.Call):
                yield part.lineno, f"{ast.unparse(part)}: let the future have a fresh error, for example error.again()"
        else:
            continue
        for value in kept:
            for name in sorted(_names(value) & (caught - deleted)):
                yield (
                    getattr(part, "lineno", 0),
                    f"{ast.unparse(part)}: {name} stays behind its handler; keep {name}.again()",
                )


def _is_fresh(error: ast.expr, held: frozenset[str]) -> bool:
    """Return whether an error is created here, or held only while it is handled."""
    if isinstance(error, ast.Call):
        return True
    return isinstance(error, ast.Name) and (error.id in held or error.id[0].isupper() or error.id.startswith("_"))


def _names(value: ast.expr) -> set[str]:
    """Yield the variables whose value is this one, or a part of it; not those that it is computed from."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.BoolOp | ast.IfExp | ast.Starred):
        return {name for child in ast.iter_child_nodes(value) if isinstance(child, ast.expr) for name in _names(child)}
    return set()


def _name_of(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def test_no_error_stays() -> None:
    found, excepted = [], set()
    for path, tree, _text in trees():
        if path.startswith(SHORT_LIVED):
            continue
        for function, line, text in faults(tree):
            if f"{path} {function}" in EXCEPTIONS:
                excepted.add(f"{path} {function}")
            else:
                found.append(f"{path}:{line} {text}")
    assert found == []
    assert excepted == set(EXCEPTIONS)


@pytest.mark.parametrize(
    "code",
    [
        "error = refusal()\nraise error",
        "raise self.error",
        "raise last or LmqError('no_leader', '')",
        "raise errors[0]",
        "try:\n    call()\nexcept LmqError as exc:\n    last = exc",
        "try:\n    call()\nexcept LmqError as exc:\n    self.last, place = exc, 1",
        "try:\n    call()\nexcept LmqError as exc:\n    failed.append(exc)",
        "try:\n    call()\nexcept LmqError as exc:\n    pass\nraise exc",
        "future.set_exception(error)",
    ],
)
def test_code_that_keeps_an_error_is_found(code: str) -> None:
    body = "\n".join(f"    {line}" for line in code.splitlines())
    assert len(list(faults(ast.parse(f"def f():\n{body}")))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "raise refusal()",
        "raise error.again()",
        "raise ClosedError",
        "try:\n    call()\nexcept LmqError as exc:\n    return exc",
        "try:\n    call()\nexcept LmqError as exc:\n    raise",
        "try:\n    call()\nexcept LmqError as exc:\n    raise Other(str(exc)) from exc",
        "try:\n    call()\nexcept LmqError as exc:\n    last = exc.again()\n    code = exc.code",
        "try:\n    raise error\nfinally:\n    del error",
        "future.set_exception(error.again())",
    ],
)
def test_code_that_keeps_none_is_not_found(code: str) -> None:
    body = "\n".join(f"    {line}" for line in code.splitlines())
    assert list(faults(ast.parse(f"def f():\n{body}"))) == []
