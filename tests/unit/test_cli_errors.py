"""Exit codes: the table in --help, and what each kind of failure becomes."""

from __future__ import annotations

import re

import click
import pytest
from lmqcluster_cli.admin import cli as admin_cli
from lmqcluster_cli.errors import CliError, ExitCode, run
from lmqcluster_cli.lmq import cli as lmq_cli

from lmqcluster.node.config import ConfigError
from lmqcluster.wire.errors import ERRORS, LmqError

CONTRACT = {
    0: "done",
    2: "usage",
    65: "bad data",
    66: "no such queue or message",
    69: "node unreachable or no quorum",
    70: "a bug",
    75: "timed out or outcome unknown",
    77: "not authorised",
    78: "configuration",
}


@pytest.mark.parametrize(("command", "name"), [(lmq_cli, "lmq"), (admin_cli, "lmq-admin")])
def test_help_has_the_table_of_exit_codes(
    command: click.Command, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"], prog_name=name)
    assert caught.value.code == 0
    rows = dict(re.findall(r"^ +(\d+)  (\S.*)$", capsys.readouterr().out, re.MULTILINE))
    for code, meaning in CONTRACT.items():
        assert rows[str(code)].startswith(meaning)


def outcome_of(
    error: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[object, str]:
    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["prog"])
    with pytest.raises(SystemExit) as caught:
        run(fails, "prog")
    text = capsys.readouterr()
    assert text.out == ""
    return caught.value.code, text.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("wrong\nin two lines."), 2),
        (click.BadParameter("no"), 2),
        (CliError("node: no such file", ExitCode.BAD_DATA), 65),
        (ConfigError("http is odd (flag --http)"), 78),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (ZeroDivisionError("by zero\nand more"), 70),
        *((LmqError(name, f"it was {name}"), spec.exit_code) for name, spec in ERRORS.items()),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else str(value),
)
def test_every_failure_is_one_line_and_an_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, text = outcome_of(error, capsys, monkeypatch)
    assert status == code
    assert code in {*CONTRACT, 130}
    # After Ctrl-C the terminal shows ^C, so that line is ended first.
    text = text.removeprefix("\n")
    assert text.startswith("prog: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")


def test_a_bug_shows_where_on_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMQ_DEBUG", "1")
    status, text = outcome_of(ZeroDivisionError("by zero"), capsys, monkeypatch)
    assert status == 70
    assert "Traceback" in text
