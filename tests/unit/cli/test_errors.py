"""Exit codes: the table in --help, and the code of each kind of failure."""

from __future__ import annotations

import itertools
import re

import click
import pytest
from lmqcluster_cli.admin.program import cli as admin_cli
from lmqcluster_cli.lmq.program import cli as lmq_cli
from lmqcluster_cli.pipeline.program import cli as pipeline_cli
from lmqcluster_cli.shared.errors import CliError, ExitCode, exit_code_of, run

from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.wire.errors import ERRORS, LmqError, Outcome

CONTRACT = {
    0: "done",
    2: "usage",
    65: "bad data",
    66: "no such queue or message",
    69: "node unreachable, no quorum",
    70: "a bug",
    74: "a file or the output cannot be read or written",
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
        *((error, exit_code_of(error)) for error in (LmqError(name, f"it was {name}") for name in ERRORS)),
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


def test_a_bug_shows_a_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMQ_DEBUG", "1")
    status, text = outcome_of(ZeroDivisionError("by zero"), capsys, monkeypatch)
    assert status == 70
    assert "Traceback" in text


# --- which code ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retryable", [False, True])
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (code, outcome)
        for code, outcome in itertools.product(ERRORS, Outcome)
        if code != "unknown_outcome" or outcome is Outcome.UNKNOWN
    ],
)
def test_the_exit_code_distinguishes_refusals_from_unknown_outcomes(
    code: str, retryable: bool, outcome: Outcome
) -> None:
    """75 stands for unknown outcomes only and for all of them, so that a script may repeat a command that
    ended with 69.
    """
    error = LmqError(code, "it failed", retryable=retryable, outcome=outcome)
    found = exit_code_of(error)
    assert found in CONTRACT
    if code == "internal":
        assert found == 70
    elif outcome is Outcome.UNKNOWN:
        assert found == 75
    elif retryable:
        assert found == 69
    else:
        assert found not in (0, 70, 75)
        assert found == ERRORS[code].exit_code


@pytest.mark.parametrize(
    "arguments",
    [["lmq"], ["lmq", "config"], ["lmq-admin"], ["lmq-admin", "queue"], ["lmq-admin", "token"], ["lmq-pipeline"]],
)
def test_a_program_or_group_without_a_command_prints_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole page is on standard output, without a one-line error; the status says that no command was given."""
    program, *rest = arguments
    commands = {"lmq": lmq_cli, "lmq-admin": admin_cli, "lmq-pipeline": pipeline_cli}
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as caught:
        run(commands[program], program)
    bare = capsys.readouterr()
    monkeypatch.setattr("sys.argv", [*arguments, "--help"])
    with pytest.raises(SystemExit) as asked:
        run(commands[program], program)
    assert (caught.value.code, asked.value.code) == (2, 0)
    assert bare.out == capsys.readouterr().out
    assert bare.out.startswith(f"Usage: {' '.join([program, *rest])} ")
    assert bare.out.count("\n") > 5
    assert bare.err == ""
