"""Errors of the drill ground, which are not findings about the cluster."""

from __future__ import annotations

__all__ = ["BrokenPromiseError", "DrillError", "HistoryError", "MissingToolError", "ScenarioError"]


class DrillError(RuntimeError):
    """The drill itself could not be carried out: nothing can be said about the cluster."""


class MissingToolError(DrillError):
    """A program that a fault needs is not there and could not be had; the text says what to install."""


class HistoryError(DrillError):
    """A history cannot be read."""


class ScenarioError(ValueError):
    """A scenario cannot be understood; the text names the file and the key."""


class BrokenPromiseError(RuntimeError):
    """A node did something that it must not do, whatever the history says: the drill has failed."""
