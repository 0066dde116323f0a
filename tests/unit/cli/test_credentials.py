"""The sources of tokens and certificates for the programs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from lmqcluster_cli.shared.certificates import Authority
from lmqcluster_cli.shared.connection.credentials import credential_options, credentials
from lmqcluster_cli.shared.errors import CliError


@click.group()
@credential_options
def program() -> None:
    """A program with commands."""


@program.command()
@credential_options
def show() -> None:
    found = credentials()
    click.echo(f"{found.scheme} {found.token} {found.headers}")


def run(*arguments: str, **environment: str) -> Result:
    cleared = {f"LMQ_{name}": None for name in ("TOKEN", "TOKEN_FILE", "CA_FILE", "CERT_FILE")}
    return CliRunner().invoke(program, arguments, env={**cleared, **environment}, standalone_mode=False)


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("from a file\n")
    return str(path)


def test_without_any_nothing_is_shown() -> None:
    assert run("show").output == "http None {}\n"


def test_options_are_accepted_before_or_after_the_command(token_file: str) -> None:
    expected = "http from a file {'Authorization': 'Bearer from a file'}\n"
    assert run("--token-file", token_file, "show").output == expected
    assert run("show", "--token-file", token_file).output == expected
    assert run("show", LMQ_TOKEN_FILE=token_file).output == expected


def test_an_option_beats_the_environment(token_file: str) -> None:
    assert run("show", "--token", "given", LMQ_TOKEN="other").output.startswith("http given ")
    assert run("show", "--token", "given", LMQ_TOKEN_FILE=token_file).output.startswith("http given ")
    assert run("show", "--token-file", token_file, LMQ_TOKEN="other").output.startswith("http from a file ")


def test_a_token_and_a_file_with_one_are_refused(token_file: str) -> None:
    assert isinstance(run("show", "--token", "x", "--token-file", token_file).exception, click.UsageError)


def test_an_authority_turns_tls_on(tmp_path: Path) -> None:
    Authority.create(tmp_path)
    assert run("show", "--ca-file", str(tmp_path / "ca.crt")).output.startswith("https None")
    assert run("show", LMQ_CA_FILE="system").output.startswith("https None")


@pytest.mark.parametrize("option", ["--token-file", "--ca-file", "--cert-file"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, option: str) -> None:
    error = run("show", option, str(tmp_path / "absent")).exception
    assert isinstance(error, CliError)
    assert "absent" in str(error)
    assert error.exit_code == 78
