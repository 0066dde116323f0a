"""Programs that drills need beside Python: toxiproxy-server, and the library that stands between a node and its system.

Both are kept below ``$XDG_CACHE_HOME/lmqcluster`` (default ``~/.cache/lmqcluster``), so only a fresh machine pays.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from .errors import MissingToolError

__all__ = ["interposer", "toxiproxy_server"]

TOXIPROXY_VERSION = "2.12.0"
_TOXIPROXY_MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{TOXIPROXY_VERSION}"
_BUILD_S = 600.0
_SOURCE = Path(__file__).parent / "native" / "interpose.c"


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmqcluster"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def toxiproxy_server() -> Path:
    """The program toxiproxy-server: from PATH, else from the cache, else built by Go at the pinned version.

    Raises:
        MissingToolError: it cannot be had; the text says what to install.
    """
    found = shutil.which("toxiproxy-server")
    if found is not None:
        return Path(found)
    kept = _cache() / f"toxiproxy-server-{TOXIPROXY_VERSION}"
    if not kept.exists():
        _build_toxiproxy(kept)
    return kept


def _build_toxiproxy(target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingToolError(
            f"drills need toxiproxy-server {TOXIPROXY_VERSION}: install it, or Go 1.23 or newer, which then builds it"
        )
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # Another version that PATH or the environment would choose is not wanted, nor flags for other projects.
        environment = {**os.environ, "GOBIN": folder, "GOFLAGS": ""}
        _run([go, "install", _TOXIPROXY_MODULE], f"building toxiproxy-server {TOXIPROXY_VERSION}", environment)
        (Path(folder) / "server").replace(target)


@cache
def interposer() -> Path:
    """The library for LD_PRELOAD, compiled from interpose.c.

    Raises:
        MissingToolError: this is not Linux, or there is no C compiler.
    """
    if platform.system() != "Linux":
        raise MissingToolError(
            f"drills put faults under a node with LD_PRELOAD, which {platform.system()} lacks: use Linux"
        )
    stamp = hashlib.sha256(_SOURCE.read_bytes() + platform.machine().encode()).hexdigest()[:16]
    kept = _cache() / f"interpose-{stamp}.so"
    if not kept.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise MissingToolError("drills need a C compiler for faults of disk and clock: install gcc or clang")
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            built = Path(folder) / kept.name
            flags = ["-O2", "-Wall", "-shared", "-fPIC", "-o", str(built), str(_SOURCE), "-ldl", "-lpthread"]
            _run([compiler, *flags], f"compiling {_SOURCE.name}", dict(os.environ))
            built.replace(kept)
    return kept


def _run(command: list[str], what: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode != 0:
        text = (done.stderr or done.stdout).strip()[-500:]
        raise MissingToolError(f"{what} failed ({' '.join(command[:2])}): {text}")
