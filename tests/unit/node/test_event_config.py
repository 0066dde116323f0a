"""The options of the event journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.load import load_config


def test_it_is_off_by_default() -> None:
    config = NodeConfig()
    assert config.event_journal is None
    assert (config.event_journal_bytes_max, config.event_journal_files_max) == (64 << 20, 16)


def test_every_source_can_switch_it_on_and_a_stronger_one_off(tmp_path: Path) -> None:
    file = tmp_path / "lmq.toml"
    file.write_text('event_journal = "/file"\nevent_journal_bytes_max = "1MiB"\nevent_journal_files_max = 3\n')
    config = load_config(environ={}, file=file)
    assert config.event_journal == Path("/file")
    assert (config.event_journal_bytes_max, config.event_journal_files_max) == (1 << 20, 3)
    environ = {"LMQ_EVENT_JOURNAL": "/environment", "LMQ_EVENT_JOURNAL_FILES_MAX": "5"}
    config = load_config(environ=environ, file=file)
    assert (config.event_journal, config.event_journal_files_max) == (Path("/environment"), 5)
    assert load_config({"event_journal": "off"}, environ=environ, file=file).event_journal is None
    assert load_config({"event_journal": "/flag"}, environ=environ).origin("event_journal") == "flag --event-journal"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"event_journal": " "}, "event_journal: ' ' is not a non-empty text (flag --event-journal)"),
        ({"event_journal_bytes_max": "65535"}, "event_journal_bytes_max must be at least 64KiB, not 65535 B (flag"),
        ({"event_journal_bytes_max": "1 MB"}, "event_journal_bytes_max: '1 MB' is not a size"),
        ({"event_journal_files_max": "0"}, "event_journal_files_max must be at least 1, not 0 (flag"),
        ({"event_journal_files_max": "-1"}, "event_journal_files_max: '-1' is not a whole number (flag"),
        ({"event_journal_files_max": "2.5"}, "event_journal_files_max: '2.5' is not a whole number"),
        ({"event_journal_files_max": True}, "event_journal_files_max: True is not"),
    ],
)
def test_invalid_values_are_reported_with_their_source(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(flags, environ={})
    assert str(caught.value).startswith(text)
