"""Errors of drills, which are not findings about the cluster."""

from __future__ import annotations

__all__ = ["BrokenPromiseError", "DrillError", "HistoryError", "MissingToolError", "ScenarioError"]


class DrillError(RuntimeError):
    """The drill itself failed: it says nothing about the cluster."""


class MissingToolError(DrillError):
    """A program that a fault needs is missing and could not be obtained; the text says what to install."""


class HistoryError(DrillError):
    """A history cannot be read."""


class ScenarioError(ValueError):
    """A scenario is invalid; the text names the file and the key."""


class BrokenPromiseError(RuntimeError):
    """A node violated a guarantee, whatever the history says: the drill has failed."""
