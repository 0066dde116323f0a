"""Lines as Kestrel reads them: ended by LF, with or without a CR before it, tokens separated by single spaces."""

from __future__ import annotations

from ...wire.errors import LmqError

__all__ = ["LINE_BYTES_MAX", "take_line", "tokens_of"]

LINE_BYTES_MAX = 64 * 1024


def take_line(buffer: bytearray, start: int, looked: int, bytes_max: int = LINE_BYTES_MAX) -> tuple[bytes, int] | None:
    """The line that begins at `start`, and where the next one begins; None if it is not complete up to here.

    Args:
        buffer: what has come.
        start: where the line begins.
        looked: up to where there is no LF.
        bytes_max: how long the line may be.

    Raises:
        LmqError: ``too_large``.
    """
    end = buffer.find(b"\n", max(start, looked))
    if (len(buffer) if end < 0 else end) - start > bytes_max:
        raise LmqError("too_large", f"a line has at most {bytes_max} bytes")
    if end < 0:
        return None
    stop = end - 1 if end > start and buffer[end - 1] == 0x0D else end
    return bytes(buffer[start:stop]), end + 1


def tokens_of(line: bytes) -> list[bytes]:
    """Return the tokens of a request's line; empty ones at the end vanish, others stay.

    Raises:
        LmqError: ``bad_request`` for HTTP. A web page can make a browser send any commands behind such a line, and, once a
            name of its own leads here, a line whose method is a command.
    """
    found = line.split(b" ")
    while len(found) > 1 and not found[-1]:
        found.pop()
    if found[-1].startswith(b"HTTP/"):
        raise LmqError("bad_request", "this port serves clients of Kestrel, not HTTP")
    return found
