"""How the programs show nodes who they are, and how they make sure that it is a node they talk to."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from lmqcluster.client.tls import SYSTEM, client_context

from .contexts import in_use
from .errors import CliError, ExitCode
from .shared_options import SharedOption

__all__ = [
    "Credentials",
    "complete_file",
    "credential_options",
    "credentials",
    "given_credentials",
    "use_tls",
    "wants_tls",
]

_META: Final = "lmqcluster.credentials"
_META_TLS: Final = "lmqcluster.tls"
_OPTIONS: Final = {
    "token": ("--token", "TEXT", "LMQ_TOKEN", "Token to show. Other users can read it in the list of processes."),
    "token_file": ("--token-file", "FILE", "LMQ_TOKEN_FILE", "File that holds the token to show."),
    "ca_file": (
        "--ca-file",
        "FILE",
        "LMQ_CA_FILE",
        f"Use TLS; nodes must have a certificate of this authority, or, with the word {SYSTEM}, of one that the system trusts.",
    ),
    "cert_file": (
        "--cert-file",
        "FILE",
        "LMQ_CERT_FILE",
        "Certificate and key to show, where nodes ask clients for one.",
    ),
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a connection needs.

    Attributes:
        token: the secret, None to show none.
        tls: for TLS, None for a connection without.
    """

    token: str | None
    tls: ssl.SSLContext | None

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "http" if self.tls is None else "https"

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that show the token."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


def credential_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--token``, ``--token-file``, ``--ca-file`` and ``--cert-file``, which may stand before and after a command's name."""
    for name, (flag, metavar, variable, text) in reversed(_OPTIONS.items()):
        function = click.option(
            flag,
            f"credential_{name}",
            cls=SharedOption,
            metavar=metavar,
            shell_complete=complete_file if metavar == "FILE" else None,
            help=f"{text} [{variable}]",
            callback=_remember,
            expose_value=False,
        )(function)
    return function


def complete_file(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Has the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta.setdefault(_META, {})[str(parameter.name).removeprefix("credential_")] = value


def use_tls() -> None:
    """Have the command under way use TLS, with the authorities that the system trusts where no other is named."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_META_TLS] = True


def wants_tls() -> bool:
    """Whether the command under way is to use TLS because of a URL."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_META_TLS))


def given_credentials() -> dict[str, str]:
    """What the options of the command under way say, by the names of the options with underscores."""
    context = click.get_current_context(silent=True)
    found: dict[str, str] = {} if context is None else context.meta.get(_META, {})
    return found


def credentials() -> Credentials:
    """What the options of the command under way say, else the context in use, or without one the environment.

    Raises:
        CliError: a file cannot be read.
        click.UsageError: a token and a file with one are given.
    """
    context = click.get_current_context(silent=True)
    given = given_credentials()
    if "token" in given and "token_file" in given:
        raise click.UsageError("--token and --token-file say the same thing: give one of them")
    # Either of the two as an option beats both in the environment.
    used = in_use(context)
    elsewhere = _environment(*_OPTIONS) if used is None else used.credentials
    if given.keys() & {"token", "token_file"}:
        elsewhere = {name: value for name, value in elsewhere.items() if name not in ("token", "token_file")}
    values = {**elsewhere, **given}
    token = values.get("token")
    if token is None and "token_file" in values:
        token = _read(Path(values["token_file"])).strip()
    tls = None
    if "ca_file" in values or "cert_file" in values or wants_tls():
        tls = _context(values.get("ca_file", SYSTEM), values.get("cert_file"))
    return Credentials(token, tls)


def _environment(*names: str) -> dict[str, str]:
    return {name: value for name in names if (value := os.environ.get(_OPTIONS[name][2]))}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as exc:
        raise CliError(f"cannot read the token in {path}: {exc}", ExitCode.CONFIGURATION) from exc


def _context(ca_file: str, cert_file: str | None) -> ssl.SSLContext:
    try:
        return client_context(ca_file, cert_file)
    except OSError as exc:
        files = " or ".join(file for file in (ca_file, cert_file) if file not in (None, SYSTEM))
        raise CliError(f"cannot use {files}: {exc}", ExitCode.CONFIGURATION) from exc
