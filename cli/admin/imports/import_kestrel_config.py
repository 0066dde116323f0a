"""``lmq-admin import kestrel-config``: translates Kestrel's configuration file into commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from ...shared.errors import CliError, ExitCode
from .kestrel_config import Built, ConfigError, Quantity, Setting, parse_config

__all__ = ["kestrel_config"]

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_OPTIONS: Final = {
    "maxItems": ("max-items", ""),
    "maxSize": ("max-size", "B"),
    "maxItemSize": ("max-item-size", "B"),
    "maxAge": ("max-age", "s"),
    "maxQueueAge": ("max-queue-age", "s"),
    "openTransactionTimeout": ("open-transaction-timeout", "s"),
}
"""The option of ``queue set``, and the unit."""
_FLAGS: Final = {"discardOldWhenFull": "discard-old-when-full", "fanoutOnly": "fanout-only"}
_PORTS: Final = {"memcacheListenPort": "memcache", "textListenPort": "text", "thriftListenPort": "thrift"}
_NEEDLESS: Final = {
    "maxExpireSweep", "keepJournal", "syncJournal", "maxMemorySize", "defaultJournalSize", "maxJournalSize",
    "minJournalCompactDelay", "disableAggressiveRewrites", "enableTrace", "whiteListClientIdForEnqueue",
    "whiteListClientIdForDequeue", "queuePath", "expirationTimerFrequency", "defaultStatus", "statusChangeGracePeriod",
    "connectionBacklog", "connectionLimitRefuseWrites", "connectionLimitRefuseReads", "clientTimeout", "loggers",
    "zookeeper",
}  # fmt: skip
"""Settings without an equivalent."""
_EVERY_QUEUE: Final = "."


class _Translation:
    """The lines to print, and the settings that are not understood."""

    def __init__(self, built: Built) -> None:
        self.lines: list[str] = []
        self.unclear: list[str] = []
        self._notes: list[str] = []
        self._addresses: dict[str, str] = {}
        self._host = "0.0.0.0"
        defaults = [one._replace(name=one.name[8:]) for one in built.settings if one.name.startswith("default.")]
        # The commands run without questions: the user has reviewed them, and a script has no terminal.
        self._add_queue(["defaults", "add", "--yes", _EVERY_QUEUE], defaults)
        for setting in built.settings:
            if not setting.name.startswith("default."):
                self._add(setting)
        ports = " ".join(f"--{name} {self._host}:{port}" for name, port in self._addresses.items())
        if ports:
            self._notes.append(f"every node: lmq start {ports} (beyond loopback with TLS, or with kestrel_insecure)")
        # A comment must remain a comment for the shell, whatever the file contains.
        self.lines += [f"# {_printable(one)}" for one in self._notes]

    def _add(self, setting: Setting) -> None:
        name, value = setting.name, setting.value
        if name in ("queues", "aliases"):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Built):
                    self._add_named(one, setting)
                else:
                    self._note_unclear(setting)
        elif name in _PORTS:
            if isinstance(value, Quantity):
                self._addresses[_PORTS[name]] = _number(value)
        elif name == "listenAddress" and isinstance(value, str):
            self._host = value
        elif name == "maxOpenTransactions" and isinstance(value, Quantity):
            self._notes.append(f"every node: kestrel_open_reads_max = {_number(value)}")
        elif name in _NEEDLESS or name.startswith("admin."):
            self._note_without_equivalent(setting)
        else:
            self._note_unclear(setting)

    def _add_named(self, built: Built, where: Setting) -> None:
        name = next((one.value for one in built.settings if one.name == "name"), None)
        if not isinstance(name, str):
            self.unclear.append(f"line {where.line}: the name of a {_printable(built.kind)} cannot be read")
            return
        settings = [one for one in built.settings if one.name != "name"]
        self._add_queue(["queue", "set", "--create"], settings, name)

    def _add_queue(self, command: list[str], settings: list[Setting], name: str | None = None) -> None:
        options: list[str] = []
        for setting in settings:
            options += self._options_of(setting)
        if options:
            # A name may begin like an option, so it follows --.
            words = ["lmq-admin", *command, *options, *([] if name is None else ["--", name])]
            if all(map(str.isprintable, words)):
                self.lines.append(shlex.join(words))
            else:
                self.unclear.append(
                    f"line {settings[0].line}: a name contains control characters, which are not allowed"
                )

    def _options_of(self, setting: Setting) -> list[str]:
        name, value = setting.name, setting.value
        option, unit = _OPTIONS.get(name, ("", ""))
        if option and isinstance(value, Quantity) and value.unit in ("", unit):
            return [f"--{option}", _number(value)]
        if name in _FLAGS and isinstance(value, bool):
            return [f"--{_FLAGS[name]}" if value else f"--no-{_FLAGS[name]}"]
        if name == "expireToQueue" and isinstance(value, str):
            return ["--expire-to-queue", value]
        if name == "destinationQueues" and isinstance(value, list):
            names = [one for one in value if isinstance(one, str)]
            if len(names) == len(value):
                return [word for one in names for word in ("--destination-queues", one)]
        if name in _NEEDLESS or (value is None and (option or name == "expireToQueue")):
            self._note_without_equivalent(setting)
        else:
            self._note_unclear(setting)
        return []

    def _note_without_equivalent(self, setting: Setting) -> None:
        self._notes.append(f"line {setting.line}: no equivalent of {_printable(setting.name)}")

    def _note_unclear(self, setting: Setting) -> None:
        self.unclear.append(f"line {setting.line}: not understood: {_printable(setting.name)}")


def _number(value: Quantity) -> str:
    return f"{value.number:.15g}" if value.number % 1 else str(int(value.number))


def _printable(text: str) -> str:
    """Return at most 200 characters of a text, with a question mark for each unprintable one."""
    return "".join(one if one.isprintable() else "?" for one in text[:200])


@click.command("kestrel-config", short_help="Print commands for the settings of Kestrel's configuration file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def kestrel_config(file: Path) -> ExitCode:
    """Print the commands that apply the settings and aliases of FILE, a configuration file of Kestrel (.scala).

    Neither the file's program nor the commands are executed: review them, then run them with sh -e; they ask nothing.
    Settings without an equivalent become comments. Settings that are not understood are reported with their lines, and
    the exit code is 65.

    \b
    Example:
      lmq-admin import kestrel-config production.scala > queues.sh
    """
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"the file has more than {FILE_BYTES_MAX} bytes")
        found = _Translation(parse_config(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as exc:
        raise CliError(f"{file} cannot be read as a configuration of Kestrel: {exc}", ExitCode.BAD_DATA) from exc
    for line in found.lines:
        click.echo(line)
    for problem in found.unclear:
        click.echo(f"lmq-admin: {problem}", err=True)
    return ExitCode.BAD_DATA if found.unclear else ExitCode.DONE
