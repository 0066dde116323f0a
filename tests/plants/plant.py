"""A list of planted bugs, and their application to a copy of the sources."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Plant", "StalePlantError", "copy_sources", "load_plants"]

ROOT = Path(__file__).parents[2]
_FOLDERS = {"lmqcluster": "lmqcluster", "cli": "lmqcluster_cli", "chaos": "lmqcluster_chaos"}
_COPIED = ("tests", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")


class StalePlantError(ValueError):
    """The sources have changed: the text that a plant replaces does not occur exactly once."""


@dataclass(frozen=True)
class Plant:
    """A planted bug.

    Attributes:
        name: its name for `python -m tests.plants`.
        about: the fault in the planted sources.
        edits: (file, old text, new text) of each replacement.
        checks: the checks that must fail: arguments of pytest, or ``sim SUBJECT PROFILE SEED SEEDS`` for the first runs of the
            simulator from a seed on.
        harmless: why nothing fails, empty if something must.
    """

    name: str
    about: str
    edits: tuple[tuple[str, str, str], ...]
    checks: tuple[str, ...]
    harmless: str = ""

    def edited(self, root: Path = ROOT) -> dict[str, str]:
        """Return the planted text of each file.

        Raises:
            StalePlantError: the sources have changed.
        """
        texts: dict[str, str] = {}
        for file, old, new in self.edits:
            text = texts.get(file) or (root / file).read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise StalePlantError(f"{self.name}: {file} has {text.count(old)} times what is replaced:\n{old}")
            texts[file] = text.replace(old, new)
        return texts


def load_plants() -> dict[str, Plant]:
    """Return all planted bugs by name."""
    tables = [
        table
        for path in sorted(Path(__file__).parent.glob("*.toml"))
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["plant"]
    ]
    plants = {table["name"]: _plant(**table) for table in tables}
    if len(plants) != len(tables):
        raise ValueError("two plants have the same name")
    return plants


def _plant(
    name: str,
    about: str,
    file: str = "",
    old: str = "",
    new: str = "",
    edits: list[list[str]] | None = None,
    **more: Any,
) -> Plant:
    """Return the plant of one table of a file; `file`, `old` and `new` are its only edit."""
    changed = tuple((one[0], one[1], one[2]) for one in edits or [[file, old, new]])
    return Plant(name, about, changed, tuple(more.get("checks", ())), more.get("harmless", ""))


def copy_sources(target: Path) -> None:
    """Copy the sources that the tests import; with the folder on ``PYTHONPATH`` they precede installed ones."""
    for name in (*_FOLDERS, *_COPIED):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True)
        else:
            shutil.copy2(source, target / name)
    for folder, package in _FOLDERS.items():
        if folder != package:
            (target / package).symlink_to(folder)
