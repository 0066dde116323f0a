"""What a command says that has changed something."""

from __future__ import annotations

import sys
from typing import Any

from ..shared.output import print_json
from ..shared.target import Target

__all__ = ["tell"]


def tell(target: Target, answer: Any, text: str) -> None:
    """Print the answer as JSON if that is wanted, else the text on a terminal."""
    if target.as_json:
        print_json(answer)
    elif sys.stdout.isatty():
        print(text)
