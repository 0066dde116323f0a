"""Credentials of the programs, and how they verify that the server is a node."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from lmqcluster.client import ClientOptions
from lmqcluster.client.transport.credentials import read_token
from lmqcluster.client.transport.tls import SYSTEM, client_context

from ..errors import CliError, ExitCode
from ..shared_options import SharedOption
from .contexts import context_in_use

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
    "token": (
        "--token",
        "TEXT",
        "LMQ_TOKEN",
        "Token to authenticate with. Other users can read it in the list of processes.",
    ),
    "token_file": ("--token-file", "FILE", "LMQ_TOKEN_FILE", "File that contains the token."),
    "ca_file": (
        "--ca-file",
        "FILE",
        "LMQ_CA_FILE",
        f"Use TLS; verify nodes by this certificate authority, or by those of the system with the word {SYSTEM}.",
    ),
    "cert_file": (
        "--cert-file",
        "FILE",
        "LMQ_CERT_FILE",
        "Client certificate and key, if nodes require one.",
    ),
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a connection.

    Attributes:
        token: the secret; None to send none.
        tls: the TLS context; None for plain TCP.
        for_clients: the same as options of `lmqcluster.Client`, which rereads the files when they change.
    """

    token: str | None
    tls: ssl.SSLContext | None
    for_clients: ClientOptions

    @property
    def scheme(self) -> str:
        """Return ``http`` or ``https``."""
        return "http" if self.tls is None else "https"

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that carry the token."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


def credential_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--token``, ``--token-file``, ``--ca-file`` and ``--cert-file``, which may be given before and after a
    command's name.
    """
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
    """Complete the name of a file in the shell."""
    return [CompletionItem(incomplete, type="file")]


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta.setdefault(_META, {})[str(parameter.name).removeprefix("credential_")] = value


def use_tls() -> None:
    """Use TLS in the current command, with the system's authorities unless another one is named."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_META_TLS] = True


def wants_tls() -> bool:
    """Return whether a URL requires TLS for the current command."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_META_TLS))


def given_credentials() -> dict[str, str]:
    """Return the credential options of the current command by name, with underscores."""
    context = click.get_current_context(silent=True)
    found: dict[str, str] = {} if context is None else context.meta.get(_META, {})
    return found


def credentials() -> Credentials:
    """Return the credentials from the options, else from the context in use, else from the environment.

    Raises:
        CliError: a file cannot be read.
        click.UsageError: both a token and a token file are given.
    """
    context = click.get_current_context(silent=True)
    given = given_credentials()
    if "token" in given and "token_file" in given:
        raise click.UsageError("--token and --token-file exclude each other")
    # An option, of either kind, overrides both in the environment.
    used = context_in_use(context)
    elsewhere = _environment(*_OPTIONS) if used is None else used.credentials
    if given.keys() & {"token", "token_file"}:
        elsewhere = {name: value for name, value in elsewhere.items() if name not in ("token", "token_file")}
    values = {**elsewhere, **given}
    token = values.get("token")
    if token is None and "token_file" in values:
        token = _read(values["token_file"])
    shown: ClientOptions = {"token": token}
    if "token" not in values and "token_file" in values:
        shown = {"token_file": values["token_file"]}
    tls = None
    if "ca_file" in values or "cert_file" in values or wants_tls():
        ca_file, cert_file = values.get("ca_file", SYSTEM), values.get("cert_file")
        tls = _context(ca_file, cert_file)
        shown |= {"tls_ca": ca_file, "tls_cert": cert_file}
    return Credentials(token, tls, shown)


def _environment(*names: str) -> dict[str, str]:
    return {name: value for name in names if (value := os.environ.get(_OPTIONS[name][2]))}


def _read(file: str) -> str:
    try:
        return read_token(file)
    except (OSError, ValueError) as exc:
        raise CliError(f"cannot read the token in {file}: {exc}", ExitCode.CONFIGURATION) from exc


def _context(ca_file: str, cert_file: str | None) -> ssl.SSLContext:
    try:
        return client_context(ca_file, cert_file)
    except OSError as exc:
        files = " or ".join(file for file in (ca_file, cert_file) if file not in (None, SYSTEM))
        raise CliError(f"cannot use {files}: {exc}", ExitCode.CONFIGURATION) from exc
