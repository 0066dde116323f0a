"""The sizes of files and functions, cycles between files, and the list of packages."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "lmqcluster": ROOT / "lmqcluster",
    "lmqcluster_cli": ROOT / "cli",
    "lmqcluster_chaos": ROOT / "chaos",
    "pyspark_lmq": ROOT / "lmqcluster" / "spark" / "default_source",
}
FILE_LINES_MAX = 600
LONG_FILE_LINES_MAX = 1300
FUNCTION_LINES_MAX = 60
CODE = (".py", ".js", ".mjs", ".css", ".html", ".go", ".c", ".h", ".sh")

LONG_FILES = {
    "lmqcluster/core/queue/queue.py": "one class with all that happens to the messages of a queue",
    "lmqcluster/core/log/commands.py": "the records of all commands, which together are the format of the log",
    "lmqcluster/node/config/config.py": "the table of all options, most of whose lines describe them",
    "lmqcluster/client/aio/client.py": "one class with all calls, half of whose lines are docstrings",
    "lmqcluster/client/blocking/client.py": "one class with all calls of the asyncio client, in its order",
    "lmqcluster/replication/raft/core.py": "one class, because it overrides one class of PySyncObj",
}
GENERATED_FILES = {"tests/integration/kestrel_thrift/generated/Kestrel.py"}
LONG_FUNCTIONS = {
    "cli/pipeline/streams.py _stream_options": "a list of click options",
    "lmqcluster/client/aio/client.py __init__": "documented keyword arguments",
    "lmqcluster/replication/replica.py __init__": "it binds the parts of a member together",
}


def modules() -> dict[str, Path]:
    """Return all files of the packages by the names under which they are imported."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def trees() -> Iterator[tuple[str, ast.Module, str]]:
    """Return path, tree and text of each file."""
    for path in modules().values():
        text = path.read_text(encoding="utf-8")
        yield str(path.relative_to(ROOT)), ast.parse(text), text


def code_files() -> Iterator[Path]:
    """Return the code of the repository and of its tests, without third-party code."""
    for folder in (*PACKAGES.values(), ROOT / "tests", ROOT / "deploy"):
        for path in folder.rglob("*"):
            if path.suffix in CODE and path.is_file() and not {"vendor", "node_modules"} & set(path.parts):
                yield path


def test_files_are_short() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in code_files()}
    long_files = {name for name, count in lines.items() if count > FILE_LINES_MAX}
    assert long_files == set(LONG_FILES) | GENERATED_FILES
    assert [name for name in LONG_FILES if lines[name] > LONG_FILE_LINES_MAX] == []


def test_functions_are_short() -> None:
    long_functions = {
        f"{name} {node.name}"
        for name, tree, _text in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long_functions == set(LONG_FUNCTIONS)


def imports(name: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    """Return the modules that one imports, at run time or only for types."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        parents = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
        base = ".".join([*parents, *([node.module] if node.module else [])])
        for alias in node.names:
            target = f"{base}.{alias.name}"
            found.add(target if target in known else base)
    return {one for one in found if one in known and one != name}


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return groups of modules each of which can be reached from every other one."""
    reach = {name: _reached(name, graph) for name in graph}
    groups = {frozenset({other for other in reach[name] if name in reach[other]} | {name}) for name in graph}
    return [set(group) for group in groups if len(group) > 1]


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for name in graph[ahead.pop()]:
            if name not in seen:
                seen.add(name)
                ahead.append(name)
    return seen


def test_no_circles_between_files() -> None:
    known = modules()
    assert circles({name: imports(name, path, known) for name, path in known.items()}) == []


def test_the_raft_core_is_reached_through_the_replica_alone() -> None:
    """Packages above replication read `Replica.status`, so that PySyncObj's state stays within one package."""
    reaches = {
        f"{name}:{node.lineno}"
        for name, tree, _text in trees()
        if not name.startswith("lmqcluster/replication/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "core"
    }
    assert reaches == set()


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}]
    assert imports("lmqcluster.core.machine", modules()["lmqcluster.core.machine"], modules()) >= {
        "lmqcluster.core.state.state"
    }


def test_every_package_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = {
        ".".join([package, *path.parent.relative_to(folder).parts])
        for package, folder in PACKAGES.items()
        for path in folder.rglob("__init__.py")
        if path.parent == folder or path.parent not in PACKAGES.values()
    }
    assert folders <= set(listed)
    assert all((PACKAGES[name.split(".")[0]].joinpath(*name.split(".")[1:])).is_dir() for name in listed)


def test_unit_tests_are_in_packages_named_as_those_of_the_product() -> None:
    folder = ROOT / "tests" / "unit"
    packages = {path.parent.name for path in (ROOT / "lmqcluster").glob("*/__init__.py")}
    others = {"benchmarks", "cli", "project"}
    assert {path.parent.name for path in folder.glob("*/__init__.py")} <= packages | others
    assert [path.name for path in folder.glob("*.py")] == ["__init__.py"]
