"""`make release`: what it refuses, and that its packages have every file and are the same in every build."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import release
from deploy.release import ReleaseError

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "lmqcluster", "cli", "chaos", release.CHART)
EPOCH = 1_700_000_000
STATIC = "lmqcluster/console/static/index.html"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def checkout_in(folder: Path) -> Path:
    """Return a repository in which the project's files are committed."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (folder / ".gitignore").write_text("/build/\n*.egg-info/\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return checkout_in(tmp_path / "checkout")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A checkout with its wheel and its sdist."""
    folder = tmp_path_factory.mktemp("release")
    root = checkout_in(folder / "checkout")
    return (root, *release.build_packages(root, folder / "dist", EPOCH))


def rewritten(wheel: Path, target: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """Return a copy of the wheel with changed files."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(target / wheel.name, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target / wheel.name


def test_packages_have_every_tracked_file(built: tuple[Path, Path, Path]) -> None:
    root, wheel, sdist = built
    release.check_wheel(root, wheel)
    release.check_sdist(root, sdist)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {STATIC, "lmqcluster/py.typed", "pyspark_lmq/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith("tests/")]


def test_a_wheel_is_the_same_in_every_build(built: tuple[Path, Path, Path], tmp_path: Path) -> None:
    again, _sdist = release.build_packages(checkout_in(tmp_path / "elsewhere"), tmp_path / "dist", EPOCH)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(built[1].read_bytes()).digest()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda files: files.pop(STATIC), f"lacks {STATIC}", id="missing"),
        pytest.param(lambda files: files.update({"lmqcluster/x.key": b""}), "not track: lmqcluster/x.key", id="more"),
        pytest.param(
            lambda files: files.pop(next(name for name in files if name.endswith("entry_points.txt"))),
            "does not install the program lmq",
            id="programs",
        ),
    ],
)
def test_a_wrong_wheel_is_refused(
    built: tuple[Path, Path, Path], tmp_path: Path, change: Callable[[dict[str, bytes]], object], reason: str
) -> None:
    root, wheel, _sdist = built
    with pytest.raises(ReleaseError, match=reason):
        release.check_wheel(root, rewritten(wheel, tmp_path, change))


def test_a_package_that_is_not_listed_is_noticed(checkout: Path, built: tuple[Path, Path, Path]) -> None:
    (checkout / "lmqcluster" / "added").mkdir()
    (checkout / "lmqcluster" / "added" / "__init__.py").touch()
    git(checkout, "add", "--all")
    for check, file in ((release.check_wheel, built[1]), (release.check_sdist, built[2])):
        with pytest.raises(ReleaseError, match=r"lacks lmqcluster/added/__init__\.py"):
            check(checkout, file)


def test_a_checkout_with_changes_is_refused(checkout: Path) -> None:
    release.check_tree(checkout)
    (checkout / "README.md").write_text("changed")
    with pytest.raises(ReleaseError, match=r"README\.md"):
        release.check_tree(checkout)


def test_the_chart_repeats_the_version() -> None:
    assert release.check_version(ROOT)


def test_another_version_is_refused(checkout: Path) -> None:
    project = checkout / "pyproject.toml"
    version = release.check_version(checkout)
    project.write_text(project.read_text().replace(f'version = "{version}"', 'version = "9.8.7"', 1))
    with pytest.raises(ReleaseError, match=r"Chart\.yaml: 'version' is not 9\.8\.7"):
        release.check_version(checkout)


@pytest.mark.parametrize("heading", ["## Unreleased", "## 9.8.7", "## 9.8.6 - 2026-01-02"])
def test_a_changelog_without_the_release_is_refused(tmp_path: Path, heading: str) -> None:
    page = tmp_path / "CHANGELOG.md"
    page.write_text(f"# Changelog\n\n{heading}\n\n## 9.8.5 - 2026-01-01\n")
    with pytest.raises(ReleaseError, match=r"'## 9\.8\.7 - YYYY-MM-DD'"):
        release.check_changelog(tmp_path, "9.8.7")
    page.write_text(page.read_text().replace(heading, "## 9.8.7 - 2026-01-03"))
    release.check_changelog(tmp_path, "9.8.7")


def test_an_archive_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    archives = []
    for name in ("one", "other"):
        folder = tmp_path / name
        (folder / "sub").mkdir(parents=True)
        for file in ("b", "a") if name == "one" else ("a", "b"):
            (folder / "sub" / file).write_text(file)
        release.pack(folder, tmp_path / f"{name}.tar.gz", EPOCH)
        archives.append((tmp_path / f"{name}.tar.gz").read_bytes())
    assert archives[0] == archives[1]


def test_checksums_can_be_checked(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / release.SUMS).write_text(release.sums(tmp_path.iterdir()))
    check = ["sha256sum", "--check", release.SUMS]
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    (tmp_path / "a.whl").write_bytes(b"b")
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode != 0
