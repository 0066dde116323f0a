"""What commands print: tab-separated lines for scripts, tables on a terminal, JSON."""

from __future__ import annotations

import io
import json

import pytest
from lmqcluster_cli.output import Column, human_bytes, print_json, print_table

COLUMNS = [Column("Queue", "queue"), Column("Ready", "ready", right=True), Column("Bytes", "bytes", unit="bytes")]


def test_scripts_get_a_header_and_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [["a\tb\nc\\", 1234, 4096], ["x", None, 0]], empty="No queues.")
    assert capsys.readouterr().out == "queue\tready\tbytes\na\\tb\\nc\\\\\t1234\t4096\nx\t-\t0\n"


def test_scripts_get_the_header_of_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [], empty="No queues.")
    assert capsys.readouterr().out == "queue\tready\tbytes\n"


class Terminal(io.StringIO):
    """Standard output as a person sees it."""

    def isatty(self) -> bool:
        return True


def become_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # Not a fixture: pytest exchanges standard output between set-up and test.
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    return out


def test_people_get_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = become_terminal(monkeypatch)
    print_table(COLUMNS, [["[bold]a", 1234567, 4096], ["esc\x1b[31m", None, 12]])
    lines = [line.split() for line in terminal.getvalue().splitlines()]
    assert lines == [
        ["Queue", "Ready", "Bytes"],
        ["[bold]a", "1,234,567", "4.0", "KiB"],
        ["esc\\x1b[31m", "-", "12", "B"],
    ]


def test_people_are_told_that_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = become_terminal(monkeypatch)
    print_table(COLUMNS, [], empty="No queues.")
    assert terminal.getvalue() == "No queues.\n"


def test_a_narrow_terminal_folds_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = become_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "30")
    print_table(COLUMNS, [["abcdefghijklmnopqrstuvwxyz", 5, 5]])
    out = terminal.getvalue()
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 30
    assert set("abcdefghijklmnopqrstuvwxyz") <= set(out)


def test_a_narrow_terminal_leaves_out_what_matters_least(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("Node", "n"), Column("Raft", "r", rank=2), Column("HTTP", "h"), Column("RPC", "p", rank=1)]
    row = ["n1", "r" * 15, "h" * 15, "p" * 15]
    for width, titles in ((60, "Node Raft HTTP RPC"), (50, "Node HTTP RPC"), (30, "Node HTTP")):
        terminal = become_terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(columns, [row])
        lines = terminal.getvalue().splitlines()
        assert lines[0].split() == titles.split()
        assert max(map(len, lines)) <= width
        assert ("A wider terminal also shows" in lines[-2] + lines[-1]) == (width < 60)


def test_json_is_one_line_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "Zürich", "list": [1, None]}
    print_json(value)
    out = capsys.readouterr().out
    assert out == '{"name": "Zürich", "list": [1, null]}\n'
    assert json.loads(out) == value


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 21, "2.0 MiB"), (3 << 40, "3072.0 GiB")]
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text
