"""The console names sections of the documentation that exist."""

from __future__ import annotations

import re
from pathlib import Path

from lmqcluster.console import assets

ROOT = Path(__file__).parents[3]


def test_named_sections_exist() -> None:
    text = (Path(assets.__file__).parent / "static" / "findings.js").read_text(encoding="utf-8")
    named = re.findall(r'\$\{docs\("([\w.-]+)"(?:, "([^"]+)")?\)\}', text)
    assert len(named) > 5
    for page, section in named:
        headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert not section or section in headings, (page, section)
