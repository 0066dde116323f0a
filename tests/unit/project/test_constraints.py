"""The versions that `make install` uses are allowed by the project, and exist for every requirement."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
LOCKED = [Requirement(line) for line in (ROOT / ".constraints.txt").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("needed", sorted(set(NEEDED)))
def test_a_version_is_named_that_the_project_allows(needed: str) -> None:
    requirement = Requirement(needed)
    versions = [one for one in LOCKED if canonicalize_name(one.name) == canonicalize_name(requirement.name)]
    assert versions, "make lock has not been run since this was added"
    for locked in versions:
        (version,) = locked.specifier
        assert version.operator == "=="
        assert requirement.specifier.contains(version.version), locked


def test_everything_comes_from_the_configured_index() -> None:
    assert [one.url for one in LOCKED if one.url is not None] == []
