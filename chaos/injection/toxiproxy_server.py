"""Provides toxiproxy-server: from PATH, else built by Go at a pinned version, else the pinned release, verified by
checksum.

Built or downloaded programs are cached below ``$XDG_CACHE_HOME/lmqcluster``.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import platform
import shutil
import tempfile
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Final

from ..errors import MissingToolError
from .tools import cache_folder, run_tool

__all__ = ["RELEASES", "VERSION", "build", "fetch", "toxiproxy_server"]

VERSION: Final = "2.12.0"
RELEASES: Final = f"https://github.com/Shopify/toxiproxy/releases/download/v{VERSION}/"
_MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
_ASSETS: Final = {
    "x86_64": ("toxiproxy-server-linux-amd64", "556d891134a3c582dc1e1a3f7335fd55142e5965769855a00b944e13e48302fc"),
    "aarch64": ("toxiproxy-server-linux-arm64", "53e770c1c3035b5a9f1bc629fce537db1f95f62b26f4ebe6e756afd701cf077c"),
}
"""Programs of the release for Linux by ``platform.machine()``, with their SHA-256."""
_ANSWER_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 20


@cache
def toxiproxy_server() -> Path:
    """Return the program toxiproxy-server.

    Raises:
        MissingToolError: it cannot be obtained; the text says why, and what to install.
    """
    found = shutil.which("toxiproxy-server")
    if found is not None:
        return Path(found)
    kept = cache_folder() / f"toxiproxy-server-{VERSION}"
    if not kept.exists():
        _obtain(kept)
    return kept


def _obtain(target: Path) -> None:
    problems = []
    for attempt in (build, _fetch_for_this_machine):
        try:
            attempt(target)
        except MissingToolError as exc:
            problems.append(str(exc))
        else:
            return
    raise MissingToolError(
        f"drills need toxiproxy-server {VERSION} on PATH, or Go 1.23 or newer, which then builds it: {'; '.join(problems)}"
    )


def build(target: Path) -> None:
    """Build the pinned version with Go.

    Raises:
        MissingToolError: Go is missing or fails.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingToolError("Go is not installed")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # Overrides settings of PATH or the environment for other versions or projects.
        environment = {**os.environ, "GOBIN": folder, "GOFLAGS": ""}
        run_tool([go, "install", _MODULE], f"building toxiproxy-server {VERSION}", environment)
        (Path(folder) / "server").replace(target)


def _fetch_for_this_machine(target: Path) -> None:
    asset = _ASSETS.get(platform.machine()) if platform.system() == "Linux" else None
    if asset is None:
        raise MissingToolError(f"no release exists for {platform.system()} {platform.machine()}")
    name, sha256 = asset
    fetch(RELEASES + name, sha256, target)


def fetch(url: str, sha256: str, target: Path) -> None:
    """Download a program; delete it if its checksum is wrong.

    Raises:
        MissingToolError: the download failed, or the program is not the expected one.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fetched = Path(folder) / target.name
        digest = hashlib.sha256()
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer, fetched.open("wb") as file:
                while chunk := answer.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
        except (OSError, http.client.HTTPException) as exc:
            raise MissingToolError(f"the download of {url} failed: {exc}") from exc
        if digest.hexdigest() != sha256:
            raise MissingToolError(f"{url} has the SHA-256 {digest.hexdigest()} instead of {sha256}: it was deleted")
        fetched.chmod(0o755)
        fetched.replace(target)
