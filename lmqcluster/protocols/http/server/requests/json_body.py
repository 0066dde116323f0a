"""Strict JSON decoder that processes large bodies in slices.

The standard library's decoder decodes a whole document before other work gets its turn. Here it decodes one value after
another of a text that arrives in slices. A value that does not end within a slice is decoded part by part.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from .....wire.errors import LmqError

__all__ = ["NESTING_MAX", "SLICE_BYTES", "decode_json", "parse_json"]

SLICE_BYTES: Final = 128 * 1024
"""Size in bytes up to which a body is decoded at once. In larger ones, names and numbers are at most this long."""
NESTING_MAX: Final = 8
"""Maximum depth of values that are decoded part by part: little more than routes need, because each layer is scanned again."""

_ELEMENTS: Final = 2000
"""Number of elements of one array or object after which other work gets its turn."""
_NUMBER_REST: Final = len("e+")
"""Distance from the end of the text within which a number may continue in the next slice."""
_PARTLY: Final = object()
_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_COLON: Final = re.compile(r"[ \t\n\r]*+:[ \t\n\r]*+")
_COMMA: Final = re.compile(r"[ \t\n\r]*+,[ \t\n\r]*+")
# Only such an escape can produce half of a surrogate pair, which has no UTF-8 form.
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")
# Positions where a string must not be split: inside an escape, or after the first half of a pair.
_CUT: Final = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_CUT_REST: Final = len(r"\ud800\udc0")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_decoder: Final = json.JSONDecoder(parse_constant=_refuse_constant)
# Both are undocumented, but as old as the module. Tests compare them with `json.loads`.
_scan: Final = _decoder.scan_once  # type: ignore[attr-defined]
_scan_string: Final[Callable[[str, int], tuple[str, int]]] = json.decoder.scanstring  # type: ignore[attr-defined]


def parse_json(body: bytes) -> Any:
    """Decode a small body.

    Raises:
        LmqError: ``bad_request`` with the position of the mistake.
    """
    try:
        text = body.decode("utf-8")
        value = _decoder.decode(text)
    except (ValueError, RecursionError) as exc:
        raise _invalid(exc) from exc
    if _HALF_PAIR.search(text):
        _check_pairs(value)
    return value


async def decode_json(body: bytes) -> Any:
    """Decode a body of any size. In a large one, a string longer than a slice is returned as UTF-8 bytes.

    Raises:
        LmqError: ``bad_request`` with the position of the mistake.
    """
    if len(body) <= SLICE_BYTES:
        return parse_json(body)
    return await _Document(body).value()


def _invalid(reason: object) -> LmqError:
    return LmqError("bad_request", f"the body is not valid JSON: {reason}")


def _half_pair() -> LmqError:
    return LmqError("bad_request", "the body holds half of a surrogate pair, which has no UTF-8 form")


def _check_pairs(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as exc:
        raise _half_pair() from exc


class _Document:
    """A large body that is being decoded through a window of its text; `_at` is the start of the next token in the window."""

    __slots__ = ("_at", "_body", "_decoder", "_has_escapes", "_passed", "_read", "_text")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._read = 0
        self._text = ""
        self._at = 0
        self._passed = 0
        self._has_escapes = False

    async def value(self) -> Any:
        """Return the value of the whole document."""
        value = await self._value(0)
        if await self._mark():
            raise self._wrong("expected the end", before=1)
        return value

    async def _value(self, depth: int) -> Any:
        await self._space()
        value = self._whole()
        if value is _PARTLY and len(self._text) - self._at < SLICE_BYTES and not self._is_read:
            await self._go_on()
            value = self._whole()
        if value is not _PARTLY:
            return value
        first = self._text[self._at : self._at + 1]
        if first == '"':
            return await self._long_string()
        if not first or first not in "[{":
            raise self._wrong("expected a value")
        if depth == NESTING_MAX:
            raise self._wrong(f"more than {NESTING_MAX} layers are very long")
        self._at += 1
        return await (self._array(depth + 1) if first == "[" else self._object(depth + 1))

    async def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        if await self._is_next("]"):
            return items
        while True:
            if self._took_items(items):
                await asyncio.sleep(0)
                continue
            items.append(await self._value(depth))
            mark = await self._mark()
            if mark == "]":
                return items
            if mark != ",":
                raise self._wrong("expected , or ]", before=len(mark))

    async def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        if await self._is_next("}"):
            return members
        while True:
            if self._took_members(members):
                await asyncio.sleep(0)
                continue
            if not await self._is_next('"'):
                raise self._wrong("expected a name in double quotes")
            self._at -= 1
            name = await self._value(depth)
            if not isinstance(name, str):
                raise self._wrong("a name is too long")
            if not await self._is_next(":"):
                raise self._wrong("expected :")
            members[name] = await self._value(depth)
            mark = await self._mark()
            if mark == "}":
                return members
            if mark != ",":
                raise self._wrong("expected , or }", before=len(mark))

    def _took_items(self, items: list[Any]) -> bool:
        """Take items that end within the window, with their commas; return whether there may be more of them."""
        text = self._text
        for _ in range(_ELEMENTS):
            try:
                value, end = _scan(text, self._at)
            except (StopIteration, ValueError, RecursionError):
                return False
            comma = _COMMA.match(text, end)
            if comma is None:
                return False
            self._check(value, self._at, end)
            items.append(value)
            self._at = comma.end()
        return True

    def _took_members(self, members: dict[str, Any]) -> bool:
        """Take names with their values, like `_took_items`."""
        text = self._text
        for _ in range(_ELEMENTS):
            try:
                name, end = _scan(text, self._at)
                colon = _COLON.match(text, end)
                if colon is None or not isinstance(name, str):
                    return False
                value, end = _scan(text, colon.end())
            except (StopIteration, ValueError, RecursionError):
                return False
            comma = _COMMA.match(text, end)
            if comma is None:
                return False
            self._check({name: value}, self._at, end)
            members[name] = value
            self._at = comma.end()
        return True

    # --- the window -----------------------------------------------------------------------------------------------

    @property
    def _is_read(self) -> bool:
        """Return whether the window reaches the end of the body."""
        return self._read >= len(self._body)

    async def _go_on(self) -> None:
        """Move the start of the window to `_at` and append one slice."""
        await asyncio.sleep(0)
        rest = self._text[self._at :]
        self._passed += self._at
        self._at = 0
        end = self._read + SLICE_BYTES
        piece = self._body[self._read : end]
        try:
            self._text = rest + self._decoder.decode(piece, end >= len(self._body))
        except UnicodeDecodeError as exc:
            raise _invalid(f"it is not UTF-8 in or before byte {end}: {exc.reason}") from exc
        self._read = end
        self._has_escapes = _HALF_PAIR.search(self._text) is not None

    def _whole(self) -> Any:
        """Return the value at `_at` if it ends within the window, otherwise `_PARTLY`."""
        at = self._at
        try:
            value, end = _scan(self._text, at)
        except RecursionError as exc:
            raise self._wrong("it is nested too deeply") from exc
        except (StopIteration, ValueError):
            return _PARTLY
        if end + _NUMBER_REST >= len(self._text) and not self._is_read and self._text[at] not in '"[{':
            return _PARTLY
        self._check(value, at, end)
        self._at = end
        return value

    def _check(self, value: Any, start: int, end: int) -> None:
        """Refuse halves of surrogate pairs in a value of the window."""
        if self._has_escapes and _HALF_PAIR.search(self._text, start, end):
            _check_pairs(value)

    async def _space(self) -> None:
        """Skip to the next token, or to the end."""
        while True:
            if self._at < len(self._text) and self._text[self._at] not in " \t\n\r":
                return
            match = _SPACE.match(self._text, self._at)
            self._at = self._at if match is None else match.end()
            if self._at < len(self._text) or self._is_read:
                return
            await self._go_on()

    async def _mark(self) -> str:
        """Take the next character that is not whitespace; the empty string at the end."""
        await self._space()
        mark = self._text[self._at : self._at + 1]
        self._at += len(mark)
        return mark

    async def _is_next(self, mark: str) -> bool:
        """Take the next character that is not whitespace if it is `mark`; return whether it was."""
        await self._space()
        if self._text[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    async def _long_string(self) -> bytes:
        """Return a string that does not end within the window, as UTF-8; raise if it is malformed."""
        self._at += 1
        pieces: list[bytes] = []
        while True:
            text = self._text[self._at :] if self._at else self._text
            # A quote that remains ends the string. The replacements keep the length.
            masked = text.replace("\\\\", "__").replace('\\"', "__") if "\\" in text else text
            end = masked.find('"')
            size = end if end >= 0 else self._cut(masked)
            pieces.append(self._string_piece(text[:size]))
            self._at += size
            if end >= 0:
                self._at += 1
                return b"".join(pieces)
            if self._is_read:
                raise self._wrong("a string has no end")
            await self._go_on()

    def _cut(self, masked: str) -> int:
        match = _CUT.search(masked, max(0, len(masked) - _CUT_REST))
        return len(masked) if match is None else match.start()

    def _string_piece(self, piece: str) -> bytes:
        try:
            value, _end = _scan_string(f'{piece}"', 0)
            return value.encode()
        except UnicodeEncodeError as exc:
            raise _half_pair() from exc
        except ValueError as exc:
            raise self._wrong("a string holds what it must not") from exc

    def _wrong(self, what: str, before: int = 0) -> LmqError:
        return _invalid(f"{what} at character {self._passed + self._at - before}")
