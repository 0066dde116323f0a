"""A base class is a concept with several implementers, not a part of another class that was split off."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from .test_structure import modules

CHOSEN_BY_NAME = {"RollingRestart"}
"""Faults of drills, which scenarios name."""


class Walk:
    """The classes of some modules, by module and name.

    Attributes:
        subclasses: the classes of these modules that derive directly from a class.
        used: classes that are called, or passed or stored as a value.
        protocols: typing Protocols.
        defined: all.
    """

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.subclasses: dict[str, set[str]] = defaultdict(set)
        self.used: set[str] = set()
        self.protocols: set[str] = set()
        self.defined: set[str] = set()
        for module, tree in trees.items():
            self._walk(module, tree, _imported(module, tree))

    def split_classes(self) -> set[str]:
        """Return the classes with one subclass that are never used themselves and are no Protocols."""
        return {
            name
            for name, derived in self.subclasses.items()
            if len(derived) == 1 and name in self.defined - self.used - self.protocols
        }

    def _walk(self, module: str, tree: ast.Module, names: Mapping[str, str]) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.defined.add(f"{module}.{node.name}")
                for base in map(_without_parameters, node.bases):
                    if ast.unparse(base).split(".")[-1] == "Protocol":
                        self.protocols.add(f"{module}.{node.name}")
                    elif isinstance(base, ast.Name) and base.id in names:
                        self.subclasses[names[base.id]].add(f"{module}.{node.name}")
        self.used |= {names[name] for name in _values(tree) if name in names}


def _imported(module: str, tree: ast.Module) -> dict[str, str]:
    """Return the full names of the classes that a module defines and of what it imports from its own package."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found[node.name] = f"{module}.{node.name}"
    return found


def _without_parameters(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base


def _values(node: ast.AST) -> Iterator[str]:
    """Yield the names that are read as values: not as bases or types, and not to ask what something is an instance of."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "cast"):
        return
    for field, value in ast.iter_fields(node):
        if field in ("bases", "annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _values(child)


def product() -> dict[str, ast.Module]:
    """The modules of the product. Those of a package's `__init__` export, and define no class."""
    return {
        name: ast.parse(path.read_text(encoding="utf-8"))
        for name, path in modules().items()
        if path.name != "__init__.py"
    }


def test_no_base_class_exists_only_to_split_a_file() -> None:
    found = {name.rpartition(".")[2] for name in Walk(product()).split_classes()}
    assert found == CHOSEN_BY_NAME


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class Part: ...\nclass Whole(Part): ...", {"a.Part"}),
        ("class Part(Generic[T]): ...\nclass Whole(Part[int]): ...", {"a.Part"}),
        (
            "class Part: ...\nclass Whole(Part):\n    def f(self, x: Part) -> Part: return isinstance(x, Part)",
            {"a.Part"},
        ),
        ("class Part: ...\nclass Whole(Part): ...\nPart()", set()),
        ("class Part: ...\nclass Whole(Part): ...\nclass Other(Part): ...", set()),
        ("class Part: ...\nclass Whole(Part): ...\nKINDS = [Part, Whole]", set()),
        ("class Part(Protocol): ...\nclass Whole(Part): ...", set()),
        ("class Part(Exception): ...", set()),
    ],
)
def test_what_the_walk_finds(source: str, found: set[str]) -> None:
    assert Walk({"a": ast.parse(source)}).split_classes() == found


def test_classes_are_followed_through_imports() -> None:
    part, whole = ast.parse("class Part: ..."), ast.parse("from .a import Part as P\nclass Whole(P): ...")
    assert Walk({"p.a": part, "p.b": whole}).split_classes() == {"p.a.Part"}
    assert Walk({"p.a": part, "p.b": whole, "q.c": ast.parse("from p.a import Part\nPart()")}).split_classes() == set()
