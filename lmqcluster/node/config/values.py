"""Parsers of option values, which convert text or a value of a TOML file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ...wire.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "address",
    "address_or_off",
    "addresses",
    "choice",
    "count",
    "hosts",
    "memory_of_machine",
    "path",
    "path_or_off",
    "ratio",
    "size",
    "text",
    "url_or_off",
]

_SIZE_UNITS: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


def choice(*allowed: str) -> Callable[[object], str]:
    """Return a parser that accepts one of these words."""

    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is not one of {', '.join(allowed)}")
        return str(value)

    return parse


def text(value: object) -> str:
    """Parse a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a non-empty text")
    return value.strip()


def path(value: object) -> Path:
    """Parse the path of a file or directory."""
    return value if isinstance(value, Path) else Path(text(value)).expanduser()


def path_or_off(value: object) -> Path | None:
    """Parse a path, or None for ``off``."""
    return None if value == "off" else path(value)


def address(value: object) -> Address:
    """Parse a host and a port."""
    if isinstance(value, Address):
        return value
    return Address.parse(text(value))


def address_or_off(value: object) -> Address | None:
    """Parse an address, or None for ``off``."""
    return None if value == "off" else address(value)


def addresses(value: object) -> tuple[Address, ...]:
    """Parse addresses, in a list or separated by commas."""
    parts = value if isinstance(value, (list, tuple)) else text(value).split(",")
    return tuple(address(part) for part in parts if part != "")


def size(value: object) -> int:
    """Parse a size in bytes, as a number or with a unit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    given = text(value)
    unit = next((unit for unit in _SIZE_UNITS if given.endswith(unit)), "")
    digits = given.removesuffix(unit).strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{value!r} is not a size: a whole number, optionally with B, KiB, MiB or GiB")
    return int(digits) * _SIZE_UNITS.get(unit, 1)


def count(value: object) -> int:
    """Parse a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    digits = text(value)
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{value!r} is not a whole number")
    return int(digits)


def ratio(value: object) -> float:
    """Parse a number from 0 to 1."""
    try:
        number = float(text(value)) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= 1 or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number from 0 to 1")
    return number


def url_or_off(value: object) -> str | None:
    """Parse a URL of HTTP, or None for ``off``."""
    if value == "off":
        return None
    given = text(value)
    try:
        parts = urlsplit(given)
        is_url = (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        is_url = False
    if not is_url:
        raise ValueError(f"{value!r} is not a URL that begins with http:// or https://, without a user")
    return given


def hosts(value: object) -> tuple[str, ...]:
    """Parse host names without ports, in a list or separated by commas, into lower case; IPv6 addresses are in brackets."""
    parts = value if isinstance(value, (list, tuple)) else text(value).split(",")
    names = [text(part).lower() for part in parts if part != ""]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name without a port")
    return tuple(names)


def tags(value: object) -> tuple[str, ...]:
    """Parse tags, in a list or separated by commas."""
    parts = value if isinstance(value, (list, tuple)) else text(value).split(",")
    return tuple(text(part) for part in parts if part != "")


def memory_of_machine() -> int:
    """Return the memory available to this process in bytes: physical memory, or the control group's limit if that is lower."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical
