"""Where toxiproxy-server comes from: PATH, else built by Go at a pinned version, else the pinned release with its checksum.

What is built or fetched is kept below ``$XDG_CACHE_HOME/lmqcluster``, so only a fresh machine pays.
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
"""Programs of the release for Linux by ``platform.machine()``, and their SHA-256."""
_ANSWER_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 20


@cache
def toxiproxy_server() -> Path:
    """The program toxiproxy-server.

    Raises:
        MissingToolError: it cannot be had in any way; the text says why not, and what to install.
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
    """Have Go build the pinned version.

    Raises:
        MissingToolError: there is no Go, or it fails.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingToolError("there is no Go")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # Another version that PATH or the environment would choose is not wanted, nor flags for other projects.
        environment = {**os.environ, "GOBIN": folder, "GOFLAGS": ""}
        run_tool([go, "install", _MODULE], f"building toxiproxy-server {VERSION}", environment)
        (Path(folder) / "server").replace(target)


def _fetch_for_this_machine(target: Path) -> None:
    asset = _ASSETS.get(platform.machine()) if platform.system() == "Linux" else None
    if asset is None:
        raise MissingToolError(f"no release is known for {platform.system()} {platform.machine()}")
    name, sha256 = asset
    fetch(RELEASES + name, sha256, target)


def fetch(url: str, sha256: str, target: Path) -> None:
    """Download a program; nothing is left of one that has another checksum.

    Raises:
        MissingToolError: it cannot be fetched, or is not the program that was expected.
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
            raise MissingToolError(f"{url} could not be fetched: {exc}") from exc
        if digest.hexdigest() != sha256:
            raise MissingToolError(
                f"{url} has the SHA-256 {digest.hexdigest()}, expected is {sha256}: it was thrown away"
            )
        fetched.chmod(0o755)
        fetched.replace(target)
