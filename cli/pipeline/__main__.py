"""Runs the program as ``python -m lmqcluster_cli.pipeline``."""

from __future__ import annotations

from .program import main

main()
