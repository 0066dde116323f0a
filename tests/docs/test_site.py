"""The site of the documentation builds without a warning, has every page, and loads nothing external."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT

BUILD_S = 300.0


def test_the_site_builds_and_is_complete(tmp_path: Path) -> None:
    site = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ".mkdocs.yml", "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert built.returncode == 0, built.stderr
    assert not re.findall(r"^(?:WARNING|ERROR).*", built.stderr, re.MULTILINE), built.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs")
        assert (site / place.with_name("index.html" if place.name == "README.md" else f"{place.stem}.html")).exists()
    for other in ("lmqcluster/DESIGN.html", "chaos/DESIGN.html", "deploy/monitoring/index.html", "CONTRIBUTING.html"):
        assert (site / other).exists()
    loaded = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="?(https?:[^" >]+)')
    for page in site.rglob("*.html"):
        assert not [url for url in loaded.findall(page.read_text(encoding="utf-8")) if "canonical" not in url], page
