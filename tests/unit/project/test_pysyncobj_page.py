"""The page on PySyncObj explains every defect that the code cites, and everything it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "pysyncobj.md").read_text(encoding="utf-8")
CORE = "lmqcluster/replication/raft/core.py"
SIMULATION = ROOT / "tests" / "simulation"
SCRIPT_FILES = {"scenarios.py": "SCENARIOS", "own_scenarios.py": "OWN_SCENARIOS", "rule_scenarios.py": "RULE_SCENARIOS"}
_NUMBER = re.compile(r"\bD[1-9]\d?\b")


class Row(NamedTuple):
    """The section of a defect."""

    number: str
    defect: str
    rule: str
    override: str
    shown: str


ROWS = [
    Row(*(" ".join(part.split()) for part in parts))
    for parts in re.findall(
        r"^### (D\d+)\n(.*?)^- Rule: (.*?)^- Override:\s(.*?)^- Shown by:\s(.*?)(?=^#|\Z)",
        PAGE,
        re.DOTALL | re.MULTILINE,
    )
]


def cited() -> set[str]:
    """Return the numbers cited in the program and its tests."""
    sources = [path for folder in ("lmqcluster", "tests") for path in (ROOT / folder).rglob("*.py")]
    texts = (path.read_text(encoding="utf-8") for path in sources if path != Path(__file__))
    return {number for text in texts for number in _NUMBER.findall(text)}


@cache
def names_of(path: str) -> frozenset[str]:
    """Return everything that a file defines: functions, classes, names and assigned attributes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def table(path: Path, name: str) -> dict[str, ast.expr]:
    """Return a dictionary with constant keys that the file assigns to `name`, or that the function `name` returns."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        values: list[ast.AST] = []
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            values = [node.value]
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            values = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
        for value in values:
            if isinstance(value, ast.Dict):
                pairs = zip(value.keys, value.values, strict=True)
                return {str(ast.literal_eval(key)): one for key, one in pairs if key is not None}
    raise LookupError(f"{path} has no dictionary {name}")


def scripts() -> dict[str, bool]:
    """Return the names of all scripts, and whether they find a violation in the unmodified library."""
    return {
        name: isinstance(call, ast.Call) and ast.literal_eval(call.args[1]) is not None
        for file, dictionary in SCRIPT_FILES.items()
        for name, call in table(SIMULATION / file, dictionary).items()
    }


def shown(kind: str, text: str = PAGE) -> set[str]:
    """Return the names that the page has after the word `kind`."""
    return set(re.findall(rf"\b{kind} `([^`]+)`", text))


def test_every_cited_number_has_one_section_and_every_section_is_cited() -> None:
    numbers = [row.number for row in ROWS]
    assert numbers == sorted(set(numbers), key=lambda number: int(number[1:]))
    assert set(numbers) == cited()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_section_is_complete(row: Row) -> None:
    assert row.defect
    assert re.search(r"\b[Pp]aper, |\b[Tt]hesis, |^As D\d+\.|^None: ", row.rule), "where Raft says so"
    assert re.search(r"`[^`]+`", row.shown) or re.match(r"None\. \w", row.shown), "a test, or why there is none"
    for other in re.findall(r"\bAs (D\d+)\.", row.rule):
        assert other in {one.number for one in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_overrides_are_where_the_section_says(row: Row) -> None:
    for part in row.override.split(";"):
        file, *overrides = re.findall(r"`([^`]+)`", part)
        assert overrides
        missing = {name for override in overrides for name in override.split(".")} - names_of(f"lmqcluster/{file}")
        assert not missing, f"{file} does not define {sorted(missing)}"


def test_every_override_of_the_core_is_on_the_page() -> None:
    tree = ast.parse((ROOT / CORE).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    overrides = {name for name in functions if name.startswith("_SyncObj__")}
    assert overrides == set(re.findall(r"\b_SyncObj__(?!name)\w+", PAGE))


def test_private_names_of_the_library_are_in_the_core_alone() -> None:
    sources = (ROOT / "lmqcluster").rglob("*.py")
    private = {str(path.relative_to(ROOT)) for path in sources if "_SyncObj__" in path.read_text(encoding="utf-8")}
    assert private == {CORE}


def test_scripts_and_switches_are_those_of_the_simulator() -> None:
    """Each that is named after a defect is in the section of that defect."""
    switches = table(SIMULATION / "switches.py", "_patches").keys()
    assert shown("off") == {name for name in switches if _NUMBER.match(name)}
    assert shown("stock") == {name for name, convicts in scripts().items() if convicts}
    assert shown("script") | shown("stock") >= {name for name in scripts() if _NUMBER.match(name)}
    assert shown("script") <= {name for name, convicts in scripts().items() if not convicts}
    assert shown("planted") <= table(SIMULATION / "planted.py", "PLANTED").keys()
    for row in ROWS:
        for kind in ("off", "stock", "script"):
            named = {number for name in shown(kind, row.shown) for number in _NUMBER.findall(name)}
            assert named <= {row.number}


def test_files_and_tests_exist() -> None:
    named = set(re.findall(r"`((?:tests|lmqcluster)/[\w/.]+\.py)(?:::(\w+))?`", PAGE))
    assert len(named) > 20
    for file, function in named:
        assert (ROOT / file).is_file(), file
        assert not function or function in names_of(file), f"{file}::{function}"
    replaced = re.search(r"^## Replaced as a whole\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    assert replaced is not None
    for file in re.findall(r"`([\w/]+\.py)`", replaced[1]):
        assert (ROOT / "lmqcluster" / file).is_file(), file


def test_the_version_is_the_pinned_one() -> None:
    pinned = re.search(r'"pysyncobj==([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert pinned is not None
    assert set(re.findall(r"(?:version|pinned to|pysyncobj==|PySyncObj) ?(\d+\.\d+\.\d+)", PAGE)) == {pinned[1]}
