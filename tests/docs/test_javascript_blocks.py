"""The JavaScript examples of the pages run, and print what their comments show."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..other_language.nodejs import nodejs
from ..queued_clients.npm import DEADLINE_S, installed_client
from ..sqs_clients.installing import npm_packages
from .conftest import ROOT

_PRINTED = re.compile(r"^console\.log\(.*\); // (.*)$", re.MULTILINE)
BLOCKS = [
    (str(page.relative_to(ROOT)), block)
    for page in sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
    for block in re.findall(r"^```javascript\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[page for page, _ in BLOCKS])
def test_the_examples_of_a_page_print_the_output_in_their_comments(
    page: str, block: str, addresses: Mapping[str, str], tmp_path: Path
) -> None:
    for shown, real in addresses.items():
        block = block.replace(shown, real)
    # The folder in which `npm install` has put the client.
    packages = npm_packages() if "@aws-sdk" in block else installed_client()
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    program = tmp_path / "example.mjs"
    program.write_text(block, encoding="utf-8")
    # Packages warn of releases of Node.js that they will not support for ever.
    command = [nodejs(), "--no-warnings", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), page
    assert done.stdout.splitlines() == _PRINTED.findall(block)
    assert done.stdout
