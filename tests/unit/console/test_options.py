"""The console knows all properties."""

from __future__ import annotations

import re
from pathlib import Path

from lmqcluster.console import assets
from lmqcluster.wire.queue_options import QUEUE_OPTIONS

NUMBERS = {"messages", "bytes", "seconds", "factor", "per second"}


def test_it_knows_every_property_and_no_other() -> None:
    text = (Path(assets.__file__).parent / "static" / "options.js").read_text(encoding="utf-8")
    found = re.findall(r'^  \["(\w+)", "(\w+)", "[^"]+"\],$', text, re.MULTILINE)
    assert found == [
        (name, "number" if option.unit in NUMBERS else option.unit) for name, option in QUEUE_OPTIONS.items()
    ]
