"""Output of commands: tab-separated lines for scripts, tables on a terminal, JSON."""

from __future__ import annotations

import io
import json

import click
import pytest
from lmqcluster_cli.admin.cluster.cluster import node_columns
from lmqcluster_cli.shared.output import (
    Column,
    Form,
    View,
    human_bytes,
    human_duration,
    print_json,
    print_table,
    table_of,
)
from rich.cells import cell_len

COLUMNS = [Column("Queue", "queue"), Column("Ready", "ready", right=True), Column("Bytes", "bytes", unit="bytes")]


def test_scripts_get_a_header_and_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [["a\tb\nc\\", 1234, 4096], ["x", None, 0]], empty="No queues.")
    assert capsys.readouterr().out == "queue\tready\tbytes\na\\tb\\nc\\\\\t1234\t4096\nx\t-\t0\n"


def test_scripts_get_the_header_of_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [], empty="No queues.")
    assert capsys.readouterr().out == "queue\tready\tbytes\n"


class Terminal(io.StringIO):
    """Standard output as a terminal."""

    def isatty(self) -> bool:
        return True


def become_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # Not a fixture: pytest replaces standard output between setup and test.
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


def test_an_empty_table_is_reported_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_narrow_terminal_omits_the_least_important_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("Node", "n"), Column("Raft", "r", rank=2), Column("HTTP", "h"), Column("RPC", "p", rank=1)]
    row = ["n1", "r" * 15, "h" * 15, "p" * 15]
    for width, titles in ((60, "Node Raft HTTP RPC"), (50, "Node HTTP RPC"), (30, "Node HTTP")):
        terminal = become_terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(columns, [row])
        lines = terminal.getvalue().splitlines()
        assert lines[0].split() == titles.split()
        assert max(map(len, lines)) <= width
        assert ("Not shown on a terminal this narrow" in lines[-2] + lines[-1]) == (width < 60)


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


# --- a view of a table -----------------------------------------------------------------------------------------------

ROWS = [["b", 2, 10], ["a", None, 30], ["c", 10, 20]]


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        (View(), "queue\tready\tbytes\nb\t2\t10\na\t-\t30\nc\t10\t20\n"),
        (View(columns=("bytes", "queue")), "bytes\tqueue\n10\tb\n30\ta\n20\tc\n"),
        (View(sort="queue", columns=("queue",)), "queue\na\nb\nc\n"),
        (View(sort="ready", columns=("queue",)), "queue\nb\nc\na\n"),
        (View(sort="-ready", columns=("queue",)), "queue\nc\nb\na\n"),
        (View(headers=False, columns=("ready",)), "2\n-\n10\n"),
        (View(Form.PLAIN), "queue  ready  bytes\nb          2  10\na          -  30\nc         10  20\n"),
        (View(Form.PLAIN, headers=False, columns=("queue",)), "b\na\nc\n"),
    ],
    ids=repr,
)
def test_columns_order_and_form(view: View, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers sort as numbers, and unknown values are last in both directions."""
    print_table(COLUMNS, ROWS, view=view)
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("view", [View(columns=("size",)), View(sort="size"), View(sort="-size")], ids=repr)
def test_an_unknown_column(view: View) -> None:
    with pytest.raises(click.UsageError, match="unknown column 'size'; the columns are queue, ready, bytes"):
        print_table(COLUMNS, ROWS, view=view)


def test_a_table_on_request_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS, view=View(Form.TABLE))
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["Queue", "Ready", "Bytes"]
    assert "\x1b" not in out


def test_an_extra_column_is_shown_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("Queue", "queue"), Column("Rate", "rate", right=True, extra=True)]
    views = [View(), View(Form.TABLE), View(Form.TABLE, sort="-rate"), View(Form.TABLE, columns=("queue", "rate"))]
    shown = []
    for view in views:
        print_table(columns, [["q", 1]], view=view)
        shown.append(capsys.readouterr().out.splitlines()[0].split())
    assert shown == [["queue", "rate"], ["Queue"], ["Queue", "Rate"], ["Queue", "Rate"]]


def test_fractions_have_the_digits_of_their_column(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("Rate", "rate", digits=1), Column("Wait", "wait")]
    print_table(columns, [[1234.56, 0.12345]])
    assert capsys.readouterr().out == "rate\twait\n1234.6\t0.123\n"


def test_a_long_text_is_cut_for_people_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [Column("Number", "number"), Column("Content", "content", cut="end"), Column("More", "more", rank=1)]
    row = ["1", "x" * 200, "y" * 20]
    print_table(columns, [row])
    assert "x" * 200 in capsys.readouterr().out
    terminal = become_terminal(monkeypatch)
    print_table(columns, [row])
    line = terminal.getvalue().splitlines()[1]
    assert len(line) <= 60
    assert "\N{HORIZONTAL ELLIPSIS}" in line
    assert "y" * 20 in line, "it makes room for the others first"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0:00:00"), (69.0, "0:01:09"), (3599, "0:59:59"), (97390, "27:03:10")]
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_the_report_of_a_node_counts_only_while_it_is_connected() -> None:
    vitals_of_node = {"uptime_s": 5.0, "process_bytes": 7, "disk_free_bytes": 9}
    node = {"id": "n-1", "name": None, "state": "follower", "lag": 3, "vitals": vitals_of_node}
    shown = node_columns(node)
    assert (shown["node"], shown["lag"], shown["uptime_s"]) == ("n-1", 3, 5.0)
    for state, vitals in (("unreachable", vitals_of_node), ("follower", None)):
        shown = node_columns({**node, "state": state, "vitals": vitals})
        assert [shown[key] for key in vitals_of_node] == [None] * 3
    assert node_columns({**node, "state": "unreachable"})["lag"] is None


def test_a_long_name_is_abbreviated_in_the_middle() -> None:
    columns = [Column("Queue", "queue", cut="middle"), Column("Oldest", "oldest", right=True, rank=2)]
    names = ["orders.2026-11-28.region-north.priority-high.attempt-000001", "orders.2026-11-28.注文" * 4, "jobs"]
    table, left_out = table_of(columns, [[name, 12] for name in names], 40)
    first, second, third = table.columns[0].cells
    assert left_out == []
    assert str(first).startswith("orders.2026-11")
    assert str(first).endswith("attempt-000001")
    assert "…" in str(first)
    assert cell_len(str(second)) <= 40 - 2 - 6
    assert str(third) == "jobs"
    (whole, *_others) = table_of(columns, [[names[0], 12]], 40, keep_all=True)[0].columns[0].cells
    assert str(whole) == names[0], "a column that is asked for is printed in full"
