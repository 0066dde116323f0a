"""Lines in Kestrel's format: ended by LF or CR LF, tokens separated by single spaces."""

from __future__ import annotations

from ...wire.errors import LmqError

__all__ = ["LINE_BYTES_MAX", "take_line", "tokens_of"]

LINE_BYTES_MAX = 64 * 1024


def take_line(buffer: bytearray, start: int, looked: int, bytes_max: int = LINE_BYTES_MAX) -> tuple[bytes, int] | None:
    """Return the line at `start` and the start of the next line; None if the line is incomplete.

    Args:
        buffer: received data.
        start: start of the line.
        looked: end of the part that was already searched for LF.
        bytes_max: maximum length of the line.

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
    """Return the tokens of a request's line. Empty tokens at the end are dropped, others are kept.

    Raises:
        LmqError: ``bad_request`` for HTTP. A web page can make a browser send arbitrary commands behind such a line. If
            a domain name of the attacker resolves to this host, the line itself can begin with a command as its method.
    """
    found = line.split(b" ")
    while len(found) > 1 and not found[-1]:
        found.pop()
    if found[-1].startswith(b"HTTP/"):
        raise LmqError("bad_request", "this port serves clients of Kestrel, not HTTP")
    return found
