"""The site of the documentation builds without a warning, has every page, loads nothing external, and shows whole tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.tools import chromium

from .conftest import ROOT

BUILD_S = 300.0


WIDTH = 1280
"""Of a small laptop's window, with both sidebars beside the page."""
FIND_FAULTS = """() => {
  const right = document.querySelector(".md-content").getBoundingClientRect().right + 1;
  const wide = [...document.querySelectorAll(".md-typeset table")]
    .filter((table) => table.getBoundingClientRect().right > right)
    .map((table) => `wider than the page: ${table.textContent.trim().slice(0, 60)}`);
  const broken = [...document.querySelectorAll(".md-typeset td:first-child code")]
    .filter((code) => /^\\w{1,24}$/.test(code.textContent) && code.getClientRects().length > 1)
    .map((code) => `broken: ${code.textContent}`);
  return [...wide, ...broken];
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    site = tmp_path_factory.mktemp("site")
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
    return site


def test_every_table_of_the_site_is_whole_in_a_window_of_a_laptop(site: Path) -> None:
    with sync_playwright() as playwright:
        # Run as root, as in containers, Chromium starts only without its sandbox; it loads only our pages.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        faults = {}
        for file in sorted(site.rglob("*.html")):
            page.goto(file.as_uri(), wait_until="domcontentloaded")
            if found := page.evaluate(FIND_FAULTS):
                faults[str(file.relative_to(site))] = found
        browser.close()
    assert not faults


def test_the_site_is_complete(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs")
        assert (site / place.with_name("index.html" if place.name == "README.md" else f"{place.stem}.html")).exists()
    for other in ("lmqcluster/DESIGN.html", "chaos/DESIGN.html", "deploy/monitoring/index.html", "CONTRIBUTING.html"):
        assert (site / other).exists()
    loaded = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="?(https?:[^" >]+)')
    for page in site.rglob("*.html"):
        assert not [url for url in loaded.findall(page.read_text(encoding="utf-8")) if "canonical" not in url], page
