"""Writes the calls of the blocking client from the signatures of the asyncio client: ``python -m deploy.blocking_client``.

Each public method of `AsyncClient` that returns a future becomes a method of `Client` that waits for its result. Methods
that the class has besides, such as `pull`, are written by hand.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

__all__ = ["generated", "written"]

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "lmqcluster" / "client" / "blocking" / "client.py"
ASYNC = ROOT / "lmqcluster" / "client" / "aio" / "client.py"
BEGIN = "    # --- calls, written by `python -m deploy.blocking_client` " + "-" * 59 + "\n"
END = "    # --- running on the client's loop " + "-" * 81 + "\n"
FAST = frozenset(("push", "done", "release", "retain", "done_many", "release_many", "retain_many", "put_back_many"))
"""Calls that take the fast path if no other thread is calling."""
BY_HAND = frozenset(
    (
        *("address", "close", "messages", "nodes", "pull", "pull_any", "pull_many", "put_back", "session"),
        *("settlements_given_up", "transaction"),
    )
)
"""Methods of `Client` that do more than to wait for a result."""
DOCSTRING_MAX = 118
CLAUSE = re.compile(r"[,;:] (?!.*[,;:] )")
"""The last mark at which a sentence can end."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def generated() -> str:
    """Return the generated methods, not formatted yet."""
    return "\n".join(textwrap.indent(_method(function), "    ") for function in _calls())


def written(text: str) -> str:
    """Return the text of the blocking client's file with its calls replaced by the generated ones."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return _formatted(f"{before}{BEGIN}\n{generated()}\n{END}{after}")


def _calls() -> Iterator[Function]:
    """Yield the public methods of the asyncio client."""
    (client,) = (
        node
        for node in ast.parse(ASYNC.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "AsyncClient"
    )
    for node in client.body:
        if isinstance(node, Function) and not node.name.startswith("_") and node.name not in BY_HAND:
            yield node


def _method(function: Function) -> str:
    arguments = function.args
    call = f"client.{function.name}({_passed(arguments)})"
    result = _result(function)
    lead = "" if result == "None" else "return "
    body = f"self._do(lambda client: {call})" if function.name in FAST else f"self._run(lambda: self._{call})"
    body = body.replace(f"lambda: self._{call})", f"self._{call[:-2]})") if call.endswith("()") else body
    return (
        f"def {function.name}({ast.unparse(arguments)}) -> {result}:\n"
        f'    """{_summary(function)}"""\n'
        f"    {lead}{body}\n"
    )


def _passed(arguments: ast.arguments) -> str:
    """Return the arguments of the call: each as it was given."""
    passed = [one.arg for one in arguments.args if one.arg != "self"]
    passed += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    return ", ".join([*passed, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg is not None else [])])


def _result(function: Function) -> str:
    """Return the type of the result: that of the future, or of a coroutine."""
    assert function.returns is not None  # noqa: S101 - the types are checked
    if isinstance(function.returns, ast.Subscript) and ast.unparse(function.returns.value) == "Future":
        return ast.unparse(function.returns.slice)
    return ast.unparse(function.returns)


def _summary(function: Function) -> str:
    """Return the first sentence of the docstring, or as many clauses of it as fit, with a reference to the rest."""
    sentence = (ast.get_docstring(function) or "").split("\n")[0].split(". ")[0].rstrip(".")
    reference = f"; see `AsyncClient.{function.name}`."
    while len(sentence) + len(reference) > DOCSTRING_MAX:
        if not CLAUSE.search(sentence):
            raise ValueError(f"the first sentence of {function.name} is too long, and has no comma at which to end")
        sentence = CLAUSE.split(sentence, maxsplit=1)[0]
    return sentence + reference


def _formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(CLIENT), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    CLIENT.write_text(written(CLIENT.read_text("utf-8")), "utf-8")
