"""Builds a release into a folder: ``python -m deploy.release``, which ``make release`` runs.

The folder gets the sdist, the wheel, the site of the documentation, the container image, an SBOM of what an installation
contains, and the checksums of all of them. Nothing is published; docs/releasing.md lists the steps.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "ReleaseError", "build_packages", "check_changelog", "check_sdist", "check_tree", "check_version", "check_wheel", "main",
    "pack", "sums",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[1]
CHART = "deploy/helm/lmqcluster/Chart.yaml"
SUMS = "SHA256SUMS"
_HEADING = re.compile(r"^## (?P<version>\S+)(?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
_NOT_INSTALLED = {".md"}
"""Suffixes of files in package folders that only readers of the sources need."""


class ReleaseError(Exception):
    """A reason why this commit cannot be released."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the release of the checked-out commit; return the exit code."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder, which is emptied (%(default)s)")
    parser.add_argument("--without-image", action="store_true", help="build no image, where Docker is missing")
    given = parser.parse_args(arguments)
    try:
        _build(ROOT, given.output.resolve(), with_image=not given.without_image)
    except ReleaseError as exc:
        print(f"make release: {exc}", file=sys.stderr)
        return 1
    return 0


def _build(root: Path, output: Path, *, with_image: bool) -> None:
    check_tree(root)
    version = check_version(root)
    check_changelog(root, version)
    if with_image and not _succeeds("docker", "info"):
        raise ReleaseError("Docker does not answer; start it, or use RELEASE_ARGS=--without-image")
    epoch = int(_run("git", "log", "-1", "--format=%ct", cwd=root))
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    wheel, sdist = build_packages(root, output, epoch)
    check_wheel(root, wheel)
    check_sdist(root, sdist)
    _describe_installation(root, wheel, version, output / f"lmqcluster-{version}.cdx.json")
    _build_docs(root, output / f"lmqcluster-{version}-docs.tar.gz", epoch)
    if with_image:
        _build_image(root, version, output / f"lmqcluster-{version}-image.tar.gz")
    (output / SUMS).write_text(sums(output.iterdir()))
    for file in sorted(output.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file.name}")


# --- the checked-out commit -------------------------------------------------------------------------------------------


def check_tree(root: Path) -> None:
    """Require that the checkout has no changes.

    Raises:
        ReleaseError: it has some, which no commit would record.
    """
    changes = _run("git", "status", "--porcelain", cwd=root)
    if changes:
        raise ReleaseError(f"the checkout has changes; commit or stash them:\n{changes}")


def check_version(root: Path) -> str:
    """Return the version in pyproject.toml.

    Raises:
        ReleaseError: the chart, which has to repeat it, states another one.
    """
    version: str = _project(root)["version"]
    chart = (root / CHART).read_text(encoding="utf-8")
    for name in ("version", "appVersion"):
        if f"\n{name}: {version}\n" not in chart:
            raise ReleaseError(f"{CHART}: '{name}' is not {version}, the version in pyproject.toml")
    return version


def check_changelog(root: Path, version: str) -> None:
    """Require that the changelog begins with this version and a date.

    Raises:
        ReleaseError: it does not.
    """
    first = _HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if first is None or first["version"] != version or not first["date"]:
        raise ReleaseError(f"CHANGELOG.md: the first release is not headed '## {version} - YYYY-MM-DD'")


def _project(root: Path) -> dict[str, Any]:
    project: dict[str, Any] = _settings(root)["project"]
    return project


def _settings(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def _tracked(root: Path, *folders: str) -> list[str]:
    return _run("git", "ls-files", "-z", "--", *folders, cwd=root).rstrip("\0").split("\0")


# --- sdist and wheel --------------------------------------------------------------------------------------------------


def build_packages(root: Path, output: Path, epoch: int) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it."""
    # The locked setuptools of this environment gives the same bytes in every build.
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), ".", cwd=root, epoch=epoch)
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(wheel), str(sdist))
    return wheel, sdist


def check_wheel(root: Path, wheel: Path) -> None:
    """Require that a wheel installs the tracked files of the packages, its programs, and nothing else.

    Raises:
        ReleaseError: a file is missing or superfluous.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = next((name for name in names if name.endswith(".dist-info/entry_points.txt")), None)
        programs = archive.read(points).decode() if points else ""
    found = {name for name in names if ".dist-info/" not in name}
    _compare(wheel.name, _installed_files(root), found)
    for name, target in _project(root)["scripts"].items():
        if f"{name} = {target}\n" not in programs:
            raise ReleaseError(f"{wheel.name} does not install the program {name}")


def _installed_files(root: Path) -> set[str]:
    """Return the paths in the wheel of all tracked files of the packages."""
    folders: dict[str, str] = _settings(root)["tool"]["setuptools"]["package-dir"]
    files = set()
    for package, folder in folders.items():
        for path in _tracked(root, folder):
            if Path(path).suffix not in _NOT_INSTALLED:
                files.add(f"{package}{path.removeprefix(folder)}")
    # A package within the folder of another one is installed under its own name only.
    nested = {f for f in folders.values() for other in folders.values() if f.startswith(f"{other}/")}
    return {file for file in files if not any(file.startswith(f"{folder}/") for folder in nested)}


def check_sdist(root: Path, sdist: Path) -> None:
    """Require that an sdist has the tracked files of the packages and what builds them.

    Raises:
        ReleaseError: a file is missing.
    """
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    folders = _settings(root)["tool"]["setuptools"]["package-dir"].values()
    needed = {path for path in _tracked(root, *folders) if Path(path).suffix not in _NOT_INSTALLED}
    _compare(sdist.name, needed | {"pyproject.toml", "README.md", "LICENSE"}, found, allows_more=True)


def _compare(name: str, expected: set[str], found: set[str], *, allows_more: bool = False) -> None:
    missing, superfluous = sorted(expected - found), [] if allows_more else sorted(found - expected)
    if missing:
        raise ReleaseError(f"{name} lacks {', '.join(missing)}; see packages and package-data in pyproject.toml")
    if superfluous:
        raise ReleaseError(f"{name} has files that git does not track: {', '.join(superfluous)}")


def _describe_installation(root: Path, wheel: Path, version: str, sbom: Path) -> None:
    """Install the wheel into an empty environment, start its programs, and write the environment's SBOM."""
    with tempfile.TemporaryDirectory(prefix="lmq-release-") as name:
        python = Path(name) / "bin" / "python"
        _run(sys.executable, "-m", "venv", name)
        pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check")
        _run(*pip, "install", "--constraint", str(root / ".constraints.txt"), f"{wheel}[thrift]")
        _run(*pip, "uninstall", "--yes", "pip", "setuptools")
        for program in ("lmq", "lmq-admin"):
            shown = _run(str(python.with_name(program)), "--version")
            if version not in shown.split():
                raise ReleaseError(f"{program} of {wheel.name} says {shown.strip()!r}, not version {version}")
        describe = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--validate")
        _run(*describe, "--pyproject", str(root / "pyproject.toml"), "--output-file", str(sbom), str(python))


# --- documentation, image, checksums ----------------------------------------------------------------------------------


def _build_docs(root: Path, target: Path, epoch: int) -> None:
    with tempfile.TemporaryDirectory(prefix="lmq-release-") as name:
        build = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", ".mkdocs.yml")
        _run(*build, "--site-dir", name, cwd=root, epoch=epoch)
        pack(Path(name), target, epoch)


def pack(folder: Path, target: Path, epoch: int) -> None:
    """Write a folder as a compressed tar file, which is the same for the same files and Unix time `epoch`."""

    def normalized(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=normalized)


def _build_image(root: Path, version: str, target: Path) -> None:
    tag = f"lmqcluster:{version}"
    labels = (f"org.opencontainers.image.version={version}", f"org.opencontainers.image.revision={_commit(root)}")
    options = [option for label in labels for option in ("--label", label)]
    _run("docker", "build", "--file", "deploy/docker/Dockerfile", "--tag", tag, *options, ".", cwd=root)
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        saving = subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE)
        if saving.stdout is None:
            raise ReleaseError("docker save has no output")
        shutil.copyfileobj(saving.stdout, packed)
        if saving.wait():
            raise ReleaseError(f"docker save {tag} failed")


def _commit(root: Path) -> str:
    return _run("git", "rev-parse", "HEAD", cwd=root).strip()


def sums(files: Iterable[Path]) -> str:
    """Return the SHA-256 checksums of files, as ``sha256sum --check`` reads them."""
    digest: Callable[[Path], str] = lambda file: hashlib.sha256(file.read_bytes()).hexdigest()  # noqa: E731
    return "".join(f"{digest(file)}  {file.name}\n" for file in sorted(files) if file.name != SUMS)


# --- programs ---------------------------------------------------------------------------------------------------------


def _run(*command: str, cwd: Path | None = None, epoch: int | None = None) -> str:
    """Run a program and return its output.

    Raises:
        ReleaseError: it failed; the error has its output.
    """
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    if epoch is not None:
        environment["SOURCE_DATE_EPOCH"] = str(epoch)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
