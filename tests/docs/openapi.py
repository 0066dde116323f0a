"""Write ``docs/openapi.json``, the OpenAPI document of a node: ``python -m tests.docs.openapi``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from lmqcluster.protocols.http.openapi.document import build

__all__ = ["FILE", "text"]

FILE: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


def text() -> str:
    """Return the document, one value a line."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
