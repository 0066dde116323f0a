"""JSON from clients, decoded strictly, and in slices where it is large.

The standard library's decoder runs to the end of a document before anything else gets its turn. Here it is given one value after
the other of a text that comes in slices. A value that does not end within a slice is taken apart.
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
"""Bodies up to here are decoded at once; in larger ones no name and no number is longer."""
NESTING_MAX: Final = 8
"""How many layers may be taken apart. Each is looked at once more, so the bound is not far above what the routes take."""

_ELEMENTS: Final = 2000
"""Others get their turn after so many elements of one array or object."""
_NUMBER_REST: Final = len("e+")
"""A number that ends so close to the end of the text may go on behind it."""
_PARTLY: Final = object()
_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_COLON: Final = re.compile(r"[ \t\n\r]*+:[ \t\n\r]*+")
_COMMA: Final = re.compile(r"[ \t\n\r]*+,[ \t\n\r]*+")
# Only such an escape can make half of a surrogate pair, which has no UTF-8 form.
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")
# Where a string must not be cut: within an escape, or behind the first half of a pair.
_CUT: Final = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_CUT_REST: Final = len(r"\ud800\udc0")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


# Both are undocumented, but as old as the module; the tests hold them to `json.loads`.
_scan: Final = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
_scan_string: Final[Callable[[str, int], tuple[str, int]]] = json.decoder.scanstring  # type: ignore[attr-defined]


def parse_json(body: bytes) -> Any:
    """Decode a small body.

    Raises:
        LmqError: ``bad_request`` with the place of the mistake.
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise _invalid(exc) from exc
    if _HALF_PAIR.search(text):
        _check_pairs(value)
    return value


async def decode_json(body: bytes) -> Any:
    """Decode a body of any size. In a large one, a string that is longer than a slice comes as its UTF-8 form.

    Raises:
        LmqError: ``bad_request`` with the place of the mistake.
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
    """A large body on its way to a value. Of its text there is a window, in which `_at` is where the next token begins."""

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
        """The value of the whole document."""
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
        """Take items that end within the window with the commas behind them; whether there may be more of them."""
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
        """As `_took_items`, for names with their values."""
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
        """Whether there is nothing behind the window."""
        return self._read >= len(self._body)

    async def _go_on(self) -> None:
        """Let the window begin here, and end a slice behind here."""
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
        """The value that begins here if it ends within the window, else `_PARTLY`."""
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
        """Go to the next token, or to the end."""
        while True:
            if self._at < len(self._text) and self._text[self._at] not in " \t\n\r":
                return
            match = _SPACE.match(self._text, self._at)
            self._at = self._at if match is None else match.end()
            if self._at < len(self._text) or self._is_read:
                return
            await self._go_on()

    async def _mark(self) -> str:
        """Take the next character that is no space; the empty string at the end."""
        await self._space()
        mark = self._text[self._at : self._at + 1]
        self._at += len(mark)
        return mark

    async def _is_next(self, mark: str) -> bool:
        """Take this character if it is the next that is no space."""
        await self._space()
        if self._text[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    async def _long_string(self) -> bytes:
        """A string that does not end within the window, or is malformed."""
        self._at += 1
        pieces: list[bytes] = []
        while True:
            text = self._text[self._at :] if self._at else self._text
            # A quote that is left here ends the string. The replacements are as long as what they stand for.
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
