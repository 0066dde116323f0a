"""Parses the queues and aliases of Kestrel's configuration files. The files are Scala programs; nothing is executed.

A file builds an object: ``new KestrelConfig { maxItems = 5; queues = new QueueBuilder { name = "mail" } }``. The parser
understands assignments of plain values, lists and further objects; it reports everything else with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["Built", "ConfigError", "Quantity", "Setting", "Strange", "Value", "parse_config"]

DEPTH_MAX: Final = 50
"""Maximum nesting of objects and lists."""
_TOKEN: Final = re.compile(
    r'(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))|"""(?P<raw>.*?)(?:"""|\Z)|"(?P<text>(?:[^"\\\n]|\\.)*)"'
    r"|(?P<number>\d+(?:\.\d+)?)(?:[lLfFdD]\b)?|(?P<word>[A-Za-z_]\w*)|(?P<sign>::|.)",
    re.DOTALL,
)
_UNITS: Final = {
    "millisecond": ("s", 0.001), "second": ("s", 1), "minute": ("s", 60), "hour": ("s", 3600), "day": ("s", 86400),
    "byte": ("B", 1), "kilobyte": ("B", 1 << 10), "megabyte": ("B", 1 << 20), "gigabyte": ("B", 1 << 30),
}  # fmt: skip
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_UNLIMITED: Final = {"None", "Int.MaxValue", "Long.MaxValue"}


class ConfigError(ValueError):
    """The text is not a configuration of Kestrel."""


class Quantity(NamedTuple):
    """A number; `unit` is ``s`` for seconds, ``B`` for bytes, else empty."""

    number: float
    unit: str = ""


class Strange:
    """An expression that is not a plain value."""


@dataclass
class Built:
    """An object that the file builds."""

    kind: str
    settings: list[Setting] = field(default_factory=list)


Value = Quantity | Strange | Built | str | bool | None | list["Value"]


class Setting(NamedTuple):
    """An assignment; the value None represents Scala's None and the largest numbers."""

    name: str
    value: Value
    line: int


class _Token(NamedTuple):
    kind: str
    text: str
    line: int

    @property
    def sign(self) -> str:
        """Return the token if it is not a literal."""
        return "" if self.kind == "text" else self.text


_END: Final = _Token("end", "", 0)


def parse_config(text: str) -> Built:
    """Return the object that the file builds.

    Raises:
        ConfigError: there is none, or it is nested too deeply.
    """
    reader = _Reader(list(_tokens(text)))
    while reader.token is not _END:
        if reader.token.text == "new" and reader.following(1).text == "KestrelConfig":
            built = reader.value(0)
            if isinstance(built, Built):
                return built
        reader.skip()
    raise ConfigError("there is no `new KestrelConfig { ... }`; files of Kestrel before 2.1 cannot be read")


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "skip":
            yield _Token("text" if kind == "raw" else kind, match[kind], line)
        line += match[0].count("\n")


class _Reader:
    """Parses tokens by recursive descent."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def token(self) -> _Token:
        return self.following(0)

    def following(self, count: int) -> _Token:
        place = self._place + count
        return self._tokens[place] if place < len(self._tokens) else _END

    def skip(self) -> _Token:
        token = self.token
        self._place += 1
        return token

    def takes(self, text: str) -> bool:
        """Skip the next token if it is this sign or word; return whether it was."""
        if self.token.sign != text:
            return False
        self._place += 1
        return True

    # --- objects --------------------------------------------------------------------------------------------------

    def _built(self, depth: int) -> Built:
        """Parse the object after ``new``."""
        built = Built(self._path())
        if self.takes("("):
            self._skip_to(")")
        if self.takes("{"):
            while self.token is not _END and not self.takes("}"):
                before = self._place
                built.settings.append(self._setting(depth + 1))
                if self._place == before:
                    self.skip()
        return built

    def _setting(self, depth: int) -> Setting:
        while self.token.sign in ("val", "var", "override", ";"):
            self.skip()
        first = self.token
        name = self._path()
        if name and self.takes("="):
            value = self.value(depth)
            self.takes(";")
            return Setting(name, value, first.line)
        self._skip_line(first.line)
        return Setting(first.text, Strange(), first.line)

    def _path(self) -> str:
        words = []
        while self.token.kind == "word":
            words.append(self.skip().text)
            if self.token.sign != "." or self.following(1).kind != "word":
                break
            self.skip()
        return ".".join(words)

    def _skip_line(self, line: int) -> None:
        """Skip to the next line, past brackets opened in this one, but not past the end of the enclosing one."""
        while self.token is not _END and self.token.line == line and self.token.sign not in _CLOSING.values():
            text = self.skip().sign
            if text in _CLOSING:
                self._skip_to(_CLOSING[text])

    def _skip_to(self, closing: str) -> None:
        """Skip past the bracket that closes the open one."""
        open_brackets = [closing]
        while open_brackets and self.token is not _END:
            text = self.skip().sign
            if text in _CLOSING:
                open_brackets.append(_CLOSING[text])
            elif text == open_brackets[-1]:
                open_brackets.pop()

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, depth: int) -> Value:
        """Parse a value, and further ones appended with ``::``."""
        if depth > DEPTH_MAX:
            raise ConfigError(f"line {self.token.line}: objects are nested more than {DEPTH_MAX} deep")
        found = self._one(depth)
        if self.token.sign != "::":
            return found
        several = [found]
        while self.takes("::"):
            if not self.takes("Nil"):
                several.append(self._one(depth))
        return several

    def _one(self, depth: int) -> Value:
        token = self.token
        if token.kind == "text":
            return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), self.skip().text)
        if token.kind == "number":
            return self._quantity()
        if self.takes("new"):
            return self._built(depth)
        path = self._path()
        if path in ("true", "false"):
            return path == "true"
        if path in _UNLIMITED:
            return None
        if path == "Nil":
            return []
        if path in ("List", "Seq", "Set", "Some") and self.takes("("):
            found = self._listed(depth)
            return found[0] if path == "Some" and found else found
        self._skip_line(token.line)
        return Strange()

    def _listed(self, depth: int) -> list[Value]:
        found: list[Value] = []
        while self.token is not _END and not self.takes(")"):
            before = self._place
            found.append(self.value(depth + 1))
            self.takes(",")
            if self._place == before and self.token.sign == "}":
                break
            if self._place == before:
                self.skip()
        return found

    def _quantity(self) -> Value:
        number, unit = float(self.skip().text), ""
        while self.takes("*") and self.token.kind == "number":
            number *= float(self.skip().text)
        known = _UNITS.get(self.following(1).text.removesuffix("s")) if self.token.sign == "." else None
        if known is not None:
            self.skip()
            self.skip()
            unit, factor = known
            number *= factor
        return Quantity(number, unit)


_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
