"""The map of CONTRIBUTING is correct: earlier additions are in the files that the map names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES_MAX = 4
ROWS = re.findall(
    r"^\| (an? [^|]+) \| `([^`]+)` \| (.+) \|$",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
WHOLE = {
    "a property": r'"{}"',
    "a MessagePack-RPC method": r'(?m)^ +b"{}": ',
    "a method to the Python clients": r'request_body\(b"{0}"|\b_client\.{0}\(',
    "a metric": r'"{}"',
    "a console page": r"\./{}\.js",
    "an operation of the log": r"\bOp\.{0}\b|\b{0}\(queue, (True|False)\)",
    "an error code": r'"{}": ErrorSpec',
}
"""Search terms for all places of an example in the code; no match may be outside the files that the map names."""


@pytest.mark.parametrize(("what", "example", "cell"), ROWS, ids=[row[0] for row in ROWS])
def test_the_files_of_the_map_contain_its_example(what: str, example: str, cell: str) -> None:
    files = re.findall(r"\]\(([^)]+)\)", cell)
    assert 1 <= len(files) <= FILES_MAX
    for file in files:
        path = ROOT / file
        assert re.search(rf"\b{example}\b", path.read_text(encoding="utf-8")) or path.stem == example, file


@pytest.mark.parametrize(("what", "example", "cell"), [row for row in ROWS if row[0] in WHOLE])
def test_the_map_leaves_no_file_out(what: str, example: str, cell: str) -> None:
    pattern = re.compile(WHOLE[what].format(example), re.IGNORECASE)
    sources = (path for path in (ROOT / "lmqcluster").rglob("*") if path.suffix in {".py", ".js"})
    found = {str(path.relative_to(ROOT)) for path in sources if pattern.search(path.read_text(encoding="utf-8"))}
    assert found
    assert found <= set(re.findall(r"\]\(([^)]+)\)", cell))


def test_the_map_has_what_is_added_most_often() -> None:
    assert {"a property", "a MessagePack-RPC method", "a metric", "a console page"} <= {row[0] for row in ROWS}
    assert WHOLE.keys() <= {row[0] for row in ROWS}
