"""The list of planted bugs matches the sources; `python -m tests.plants` shows that the checks find them."""

from __future__ import annotations

import ast
import shlex

import pytest

from tests.plants.plant import ROOT, Plant, load_plants
from tests.simulation.profiles import PROFILES
from tests.simulation.subjects import SUBJECTS

PLANTS = load_plants()
DELETED = {"N57"}
"""The code of these was deleted."""
LISTED = {f"{letter}{number:02}" for letter, last in (("N", 75), ("P", 39)) for number in range(1, last + 1)} - DELETED
"""None of these may be missing; there may be more."""


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_replaced_text_of_a_plant_occurs_once(plant: Plant) -> None:
    for file, text in plant.edited().items():
        assert text != (ROOT / file).read_text(encoding="utf-8")
        ast.parse(text)
    assert bool(plant.checks) != bool(plant.harmless)


def test_none_is_missing() -> None:
    """The reader of the list ensures that no name occurs twice."""
    assert sorted(LISTED - PLANTS.keys()) == []


@pytest.mark.parametrize("check", sorted({check for plant in PLANTS.values() for check in plant.checks}))
def test_a_check_can_be_run(check: str) -> None:
    kind, *more = shlex.split(check)
    if kind == "sim":
        subject, profile, seed, seeds = more
        assert subject in SUBJECTS
        assert set(profile.split(",")) <= PROFILES.keys()
        assert int(seed) >= 0 < int(seeds)
    else:
        assert (ROOT / kind.partition("::")[0]).exists()
