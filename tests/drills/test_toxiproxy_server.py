"""The release of toxiproxy-server is fetched once, and accepted only with the expected checksum."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from lmqcluster_chaos.errors import MissingToolError
from lmqcluster_chaos.injection import toxiproxy_server as tool

PROGRAM = b"#!/bin/sh\necho 'toxiproxy-server version 2.12.0'\n"
SHA256 = hashlib.sha256(PROGRAM).hexdigest()
NAME = f"toxiproxy-server-{tool.VERSION}"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder; ``/short/...`` ends before the announced length."""

    def log_message(self, *args: object) -> None:
        """Discard the log message."""

    def do_GET(self) -> None:
        if not self.path.startswith("/short/"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("content-length", str(len(PROGRAM)))
        self.end_headers()
        self.wfile.write(PROGRAM[:10])


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[str]:
    """The address of a server of releases, which serves the folder ``releases``."""
    folder = tmp_path / "releases"
    folder.mkdir()
    for name in ("toxiproxy-server-linux-amd64", "toxiproxy-server-linux-arm64"):
        (folder / name).write_bytes(PROGRAM)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on PATH and an empty cache; returns where the program will be kept."""
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    tool.toxiproxy_server.cache_clear()
    return tmp_path / "cache" / "lmqcluster" / NAME


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Make later tests of this process look for the real program again."""
    yield
    tool.toxiproxy_server.cache_clear()


def serve(monkeypatch: pytest.MonkeyPatch, releases: str, sha256: str = SHA256) -> None:
    monkeypatch.setattr(tool, "RELEASES", releases)
    monkeypatch.setattr(tool, "_ASSETS", {machine: (name, sha256) for machine, (name, _) in tool._ASSETS.items()})


def test_without_go_the_release_is_fetched_and_kept(
    bare_machine: Path, releases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, releases)
    assert tool.toxiproxy_server() == bare_machine
    assert "2.12.0" in subprocess.run([bare_machine], capture_output=True, text=True, check=True).stdout
    # The second time no server is contacted.
    serve(monkeypatch, "http://127.0.0.1:9/")
    tool.toxiproxy_server.cache_clear()
    assert tool.toxiproxy_server() == bare_machine


def test_a_failing_go_leads_to_the_release(
    bare_machine: Path, releases: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    go.write_text("#!/bin/sh\necho 'the module proxy is away' >&2\nexit 1\n")
    go.chmod(0o755)
    serve(monkeypatch, releases)
    assert tool.toxiproxy_server() == bare_machine
    bare_machine.unlink()
    tool.toxiproxy_server.cache_clear()
    serve(monkeypatch, "http://127.0.0.1:9/")
    with pytest.raises(MissingToolError) as caught:
        tool.toxiproxy_server()
    assert "the module proxy is away" in str(caught.value)
    assert "http://127.0.0.1:9/" in str(caught.value)
    assert "Go 1.23" in str(caught.value)


def test_another_program_is_discarded(bare_machine: Path, releases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = hashlib.sha256(b"another one").hexdigest()
    serve(monkeypatch, releases, expected)
    with pytest.raises(MissingToolError, match="deleted") as caught:
        tool.toxiproxy_server()
    assert SHA256 in str(caught.value)
    assert expected in str(caught.value)
    assert not list(bare_machine.parent.iterdir())


@pytest.mark.parametrize("path", ["not-there", "short/program"])
def test_an_incomplete_download_leaves_nothing_behind(
    tmp_path: Path, releases: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    target = tmp_path / "kept" / NAME
    target.parent.mkdir()
    with pytest.raises(MissingToolError, match=path):
        tool.fetch(releases + path, SHA256, target)
    assert not list(target.parent.iterdir())


def test_without_a_release_the_error_names_what_to_install(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "mips")
    with pytest.raises(MissingToolError, match="no release exists for Linux mips"):
        tool.toxiproxy_server()
    assert not list(bare_machine.parent.iterdir())


def test_the_real_program_starts() -> None:
    """The program that the drills of this machine use: from PATH, from Go, or fetched."""
    said = subprocess.run([tool.toxiproxy_server(), "-version"], capture_output=True, text=True, check=False)
    assert "version" in said.stdout + said.stderr
