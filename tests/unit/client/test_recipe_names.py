"""The page for users of Curator names existing objects."""

from __future__ import annotations

import builtins
import keyword
import re
from pathlib import Path
from types import ModuleType

import pytest

from lmqcluster.client import recipes
from lmqcluster.client.recipes import aio

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-curator.md"
_FIRST_NAME = re.compile(r"`\.?([A-Za-z_]+)(?![A-Za-z_=])")


def named() -> set[str]:
    """Return the first name of each piece of code in the right column of the table of names."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("## Names")[2].partition("\n\nThe bytes")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")]
    return {name for row in rows[1:] for name in _FIRST_NAME.findall(row.rsplit(" | ", 1)[1])}


@pytest.mark.parametrize("module", [recipes, aio])
def test_every_name_of_the_table_exists(module: ModuleType) -> None:
    kinds = [getattr(module, name) for name in module.__all__]
    known = {*module.__all__, *(member for kind in kinds for member in dir(kind)), *dir(builtins), *keyword.kwlist}
    found = named()
    assert len(found) > 30
    assert found - known == set()


def test_every_public_name_is_in_the_table_or_is_new() -> None:
    page = PAGE.read_text(encoding="utf-8")
    ours = {"QueueOptions", "PutError", "CorruptItemError", "QueueBase", "ConsumerLike"}
    serializers = {name for name in recipes.__all__ if name.endswith("Serializer")}
    assert {name for name in recipes.__all__ if name not in page} <= ours | serializers
