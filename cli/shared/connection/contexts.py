"""Named contexts: which node to connect to, and how, stored in files of the user.

A context names files with secrets; it contains none. Its own file must belong to the user and be inaccessible to
others: an attacker who could write it could redirect a token to another address.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from lmqcluster.wire.address import Address

from ..errors import CliError, ExitCode
from ..shared_options import SharedOption

__all__ = [
    "Context",
    "check_name",
    "complete_context",
    "context_in_use",
    "context_names",
    "context_option",
    "load_context",
    "note_node",
    "remove_context",
    "save_context",
    "select_context",
    "selected_name",
]

VARIABLE: Final = "LMQ_CONTEXT"
VERSION: Final = 1
FILE_BYTES_MAX: Final = 64 * 1024
CONTEXTS_MAX: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SELECTED: Final = ".selected"
_META: Final = "lmqcluster.contexts"


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach a cluster.

    Attributes:
        node: HTTP address of a node, ``HOST:PORT``.
        token_file, ca_file, cert_file: see the options of the same names.
    """

    node: str
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None

    @property
    def credentials(self) -> dict[str, str]:
        """Return the credential options that it names."""
        files = {"token_file": self.token_file, "ca_file": self.ca_file, "cert_file": self.cert_file}
        return {name: file for name, file in files.items() if file is not None}


# --- the context in use --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chosen:
    """The relevant options of the current command line.

    Attributes:
        is_possible: whether the program has contexts.
        name: the context that is named.
        has_node: whether a node is named.
        found: the context to use, once `is_found`.
    """

    is_possible: bool = False
    name: str | None = None
    has_node: bool = False
    found: Context | None = None
    is_found: bool = False


def context_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--context``, which may be given before and after a command's name."""
    return click.option(
        "--context",
        cls=SharedOption,
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        shell_complete=complete_context,
        help=f"Saved context to use; see the command context. [{VARIABLE}; default: the selected one]",
    )(function)


def complete_context(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of contexts; return nothing if they cannot be read."""
    try:
        return [CompletionItem(name) for name in context_names() if name.startswith(incomplete)]
    except CliError:
        return []


def _remember(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    chosen: _Chosen = context.meta.setdefault(_META, _Chosen())
    chosen.is_possible = True
    if value is not None:
        chosen.name, chosen.is_found = value, False


def note_node(context: click.Context) -> None:
    """Record that the command line names a node."""
    context.meta.setdefault(_META, _Chosen()).has_node = True


def context_in_use(context: click.Context | None) -> Context | None:
    """Return the context that the current command uses; None if it uses none.

    A named context always applies. The selected one applies only if neither ``--node`` nor ``LMQ_NODE`` names a node:
    its token must not be sent to an arbitrary node.

    Raises:
        CliError: the context does not exist or cannot be used.
    """
    chosen: _Chosen | None = None if context is None else context.meta.get(_META)
    if chosen is None or not chosen.is_possible:
        return None
    if not chosen.is_found:
        name = chosen.name or os.environ.get(VARIABLE)
        if not name and not chosen.has_node and not os.environ.get("LMQ_NODE"):
            name = selected_name()
        chosen.found = load_context(name) if name else None
        chosen.is_found = True
    return chosen.found


# --- files ----------------------------------------------------------------------------------------------------------


def check_name(name: str) -> str:
    """Return the name if it is valid for a context.

    Raises:
        CliError: it is not valid.
    """
    if _NAME.fullmatch(name) is None:
        text = f"{name!r} is not a valid name of a context: at most 64 letters, digits and . _ - (not as the first)"
        raise CliError(text, ExitCode.BAD_DATA)
    return name


def _folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    # The XDG specification requires relative paths to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".config"
    return root / "lmqcluster" / "contexts"


def _file(name: str) -> Path:
    return _folder() / f"{check_name(name)}.json"


def context_names() -> list[str]:
    """Return the names of all contexts, sorted.

    Raises:
        CliError: their folder cannot be read.
    """
    with _file_errors(_folder()):
        try:
            found = sorted(path.stem for path in _folder().iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return []
    return [name for name in found if _NAME.fullmatch(name)]


def load_context(name: str) -> Context:
    """Read a context.

    Raises:
        CliError: it does not exist or cannot be used.
    """
    path = _file(name)
    try:
        data = _read(path)
    except FileNotFoundError as exc:
        raise CliError(f"context {name!r} does not exist (lmq-admin context ls shows all)", ExitCode.NOT_FOUND) from exc
    try:
        return _parse(json.loads(data))
    except RecursionError as exc:
        raise CliError(f"{path} is nested too deeply", ExitCode.CONFIGURATION) from exc
    except ValueError as exc:
        raise CliError(f"{path}: {exc}", ExitCode.CONFIGURATION) from exc


def _parse(value: Any) -> Context:
    names = set(Context.__dataclass_fields__)
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise ValueError(f"not a context of version {VERSION}")
    fields = {key: one for key, one in value.items() if key != "version"}
    if not isinstance(fields.get("node"), str) or not fields.keys() <= names:
        raise ValueError(f"it must have node, and may have {', '.join(sorted(names - {'node'}))}")
    if not all(one is None or isinstance(one, str) for one in fields.values()):
        raise ValueError("its values must be strings")
    return Context(**{**fields, "node": str(Address.parse(fields["node"]))})


def save_context(name: str, context: Context) -> bool:
    """Write a context; return whether it is new.

    Raises:
        CliError: it cannot be written, or there are too many.
    """
    path = _file(name)
    is_new = not path.exists()
    if is_new and len(context_names()) >= CONTEXTS_MAX:
        raise CliError(f"the limit of {CONTEXTS_MAX} contexts is reached", ExitCode.CONFIGURATION)
    fields = {key: value for key, value in asdict(context).items() if value is not None}
    _write(path, json.dumps({"version": VERSION, **fields}, indent=2) + "\n")
    return is_new


def remove_context(name: str) -> None:
    """Remove a context; deselect it if it was selected.

    Raises:
        CliError: it does not exist or cannot be removed.
    """
    path = _file(name)
    with _file_errors(path):
        try:
            path.unlink()
        except FileNotFoundError as exc:
            raise CliError(f"context {name!r} does not exist", ExitCode.NOT_FOUND) from exc
        if selected_name() == name:
            select_context(None)


def selected_name() -> str | None:
    """Return the name of the selected context.

    Raises:
        CliError: the file that stores the selection cannot be used.
    """
    path = _folder() / _SELECTED
    try:
        name = _read(path).strip()
    except FileNotFoundError:
        return None
    if _NAME.fullmatch(name) is None:
        raise CliError(f"{path} does not name a context", ExitCode.CONFIGURATION)
    return name


def select_context(name: str | None) -> None:
    """Select the context to use where none is named; None selects none.

    Raises:
        CliError: the selection cannot be written.
    """
    path = _folder() / _SELECTED
    if name is None:
        with _file_errors(path):
            path.unlink(missing_ok=True)
    else:
        _write(path, f"{name}\n")


def _read(path: Path) -> str:
    with _file_errors(path):
        # Another user could have planted a link.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
                text = f"{path} must belong to you and be inaccessible to others (chmod 600)"
                raise CliError(text, ExitCode.CONFIGURATION)
            data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise CliError(f"{path} is not a context: it has more than {FILE_BYTES_MAX} bytes", ExitCode.CONFIGURATION)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise CliError(f"{path} is not UTF-8", ExitCode.CONFIGURATION) from exc


def _write(path: Path, text: str) -> None:
    with _file_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # readable by the owner only
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise CliError(f"cannot use {path}: {exc.strerror or exc}", ExitCode.CONFIGURATION) from exc
