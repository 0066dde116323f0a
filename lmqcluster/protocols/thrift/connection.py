"""A connection of a Thrift client. Calls are answered one after another."""

from __future__ import annotations

from ...ports import ConnectionSlot, Ending
from ...wire.errors import LmqError, forget_frames
from ...wire.limits import REQUEST_BYTES_MAX
from ..kestrel.connection import KestrelConnection
from ..kestrel.port_context import PortContext
from .codec import INTERNAL_ERROR, UNKNOWN_METHOD, Call, UnknownMethodError, answer, exception, read_call, read_header
from .methods import CALLS
from .types import METHODS

__all__ = ["ThriftConnection"]

_LENGTH_BYTES = 4


class ThriftConnection(KestrelConnection):
    """Connection that reads framed calls and answers them in order."""

    counts_bytes = False

    def __init__(self, port: PortContext, place: ConnectionSlot) -> None:
        super().__init__(port, place)
        self._call: Call | None = None

    async def serve(self) -> None:
        """Carry out all complete calls."""
        while (frame := self._frame()) is not None:
            del self.buffer[: _LENGTH_BYTES + len(frame)]
            await self._carry_out(frame)
            await self.flushed()

    def _frame(self) -> bytes | None:
        """Return the message at the head of the buffer, None if it is incomplete."""
        buffer = self.buffer
        if len(buffer) < _LENGTH_BYTES:
            self.wanted = _LENGTH_BYTES
            return None
        size = int.from_bytes(buffer[:_LENGTH_BYTES], "big")
        if not 0 < size <= REQUEST_BYTES_MAX:
            raise LmqError("too_large", f"a call has 1 to {REQUEST_BYTES_MAX} bytes, this one has {size}")
        self.wanted = _LENGTH_BYTES + size
        if len(buffer) < self.wanted:
            return None
        with memoryview(buffer) as view:
            return bytes(view[_LENGTH_BYTES : self.wanted])

    async def _carry_out(self, frame: bytes) -> None:
        self._call = read_header(frame)
        if self.port.is_rated:
            self.charge()
        try:
            call = read_call(frame, METHODS)
        except UnknownMethodError as exc:
            self.write(exception(exc.call, UNKNOWN_METHOD, f"there is no method {exc.call.method!r}"))
            self._call = None
            return
        since_s, code = self.loop.time(), "ok"
        try:
            self.write(answer(call, await CALLS[call.method](self, call.arguments)))
        except LmqError as exc:
            code = exc.code
            self.write(exception(call, INTERNAL_ERROR, _text_of(exc)))
            forget_frames(exc)
        finally:
            self.note(call.method, call.arguments.get("queue_name", b""), code, since_s)
        self._call = None

    def refuse(self, error: LmqError) -> None:
        """Answer the current call, if there is one, with an exception."""
        if error.code in ("bad_request", "too_large"):
            self.place.note(Ending.BAD_REQUEST, error.message)
        try:
            frame = None if self._call is not None else self._frame()
            call = self._call if frame is None else read_header(frame)
        except LmqError:
            return
        if call is not None:
            self.write(exception(call, INTERNAL_ERROR, _text_of(error)))


def _text_of(error: LmqError) -> str:
    return f"{error.code}: {error.message}"
