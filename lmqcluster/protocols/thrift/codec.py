"""Calls and answers in Thrift's binary encoding. The count and depth of values are limited while a call is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from ...wire.errors import LmqError
from ...wire.limits import NAME_BYTES_MAX, PUSH_COUNT_MAX
from .types import Field, Item, QueueInfo

__all__ = ["INTERNAL_ERROR", "Call", "UnknownMethodError", "answer", "exception", "read_call", "read_header"]

INTERNAL_ERROR: int = TApplicationException.INTERNAL_ERROR
UNKNOWN_METHOD: int = TApplicationException.UNKNOWN_METHOD
_VALUES_MAX = PUSH_COUNT_MAX + 1_000
"""Maximum number of fields and elements of one call."""


class Call(NamedTuple):
    """A call of a method: all of it, or only its header."""

    method: str
    sequence: int
    arguments: Mapping[str, Any]


class UnknownMethodError(Exception):
    """Call of an unknown method. It was read completely, so the connection stays usable."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.method)
        self.call = call


class _BoundedProtocol(TBinaryProtocol):  # type: ignore[misc]
    """Protocol that counts the values it reads, so that a few bytes cannot keep the node busy for long."""

    def __init__(self, frame: bytes) -> None:
        super().__init__(TMemoryBuffer(frame), string_length_limit=len(frame))
        self._left = _VALUES_MAX

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TException(f"a call has at most {_VALUES_MAX} fields and elements")

    def _check_container_length(self, length: int) -> None:
        super()._check_container_length(length)
        self._spend(length)

    def readFieldBegin(self) -> tuple[None, int, int]:  # noqa: N802 - the library's name
        self._spend(1)
        found: tuple[None, int, int] = super().readFieldBegin()
        return found


def read_header(frame: bytes) -> Call:
    """Return the header of a call, without its arguments.

    Raises:
        LmqError: ``bad_request``: the bytes are not a call.
    """
    try:
        return _header(_BoundedProtocol(frame))
    except (TException, EOFError, UnicodeDecodeError) as exc:
        raise _malformed(exc) from exc


def _header(protocol: _BoundedProtocol) -> Call:
    name, kind, sequence = protocol.readMessageBegin()
    if kind != TMessageType.CALL or len(name) > NAME_BYTES_MAX:
        raise TException("it is no call of a method")
    return Call(name, sequence, {})


def read_call(frame: bytes, methods: Mapping[str, Mapping[int, Field]]) -> Call:
    """Return the call in a frame. Skip fields that the method does not have or that have another type.

    Raises:
        LmqError: ``bad_request``: the bytes are not a call.
        UnknownMethodError: the method does not exist.
    """
    protocol = _BoundedProtocol(frame)
    try:
        call = _header(protocol)
        fields = methods.get(call.method)
        if fields is None:
            raise UnknownMethodError(call)
        arguments = {field.name: field.default for field in fields.values()}
        while True:
            _, kind, number = protocol.readFieldBegin()
            if kind == TType.STOP:
                return call._replace(arguments=arguments)
            field = fields.get(number)
            if field is None or field.kind != kind:
                protocol.skip(kind)
            else:
                arguments[field.name] = _value(protocol, field)
    except (TException, EOFError, UnicodeDecodeError) as exc:
        raise _malformed(exc) from exc


def _value(protocol: _BoundedProtocol, field: Field) -> object:
    if field.kind == TType.I32:
        return protocol.readI32()
    if field.kind == TType.STRING:
        return protocol.readBinary()
    # A list and a set have the same encoding.
    kind, count = protocol.readListBegin()
    if kind != field.element:
        raise TException("elements are of another type")
    read = protocol.readBinary if kind == TType.STRING else protocol.readI64
    return [read() for _ in range(count)]


def _malformed(error: Exception) -> LmqError:
    return LmqError("bad_request", f"not a call in Thrift's framed binary encoding: {str(error) or 'too short'}")


def answer(call: Call, result: object) -> bytes:
    """Return a frame with the result of a call; None for a method that returns nothing."""
    buffer, protocol = _begin(call, TMessageType.REPLY)
    if result is not None:
        _write_result(protocol, result)
    protocol.writeFieldStop()
    return _framed(buffer)


def exception(call: Call, kind: int, message: str) -> bytes:
    """Return a frame with the reason why a call failed."""
    buffer, protocol = _begin(call, TMessageType.EXCEPTION)
    TApplicationException(kind, message).write(protocol)
    return _framed(buffer)


def _begin(call: Call, kind: int) -> tuple[TMemoryBuffer, TBinaryProtocol]:
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.writeMessageBegin(call.method, kind, call.sequence)
    return buffer, protocol


def _framed(buffer: TMemoryBuffer) -> bytes:
    message: bytes = buffer.getvalue()
    return len(message).to_bytes(4, "big") + message


def _write_result(protocol: TBinaryProtocol, result: object) -> None:
    if isinstance(result, int):
        protocol.writeFieldBegin("success", TType.I32, 0)
        protocol.writeI32(result)
    elif isinstance(result, str):
        protocol.writeFieldBegin("success", TType.STRING, 0)
        protocol.writeString(result)
    elif isinstance(result, QueueInfo):
        protocol.writeFieldBegin("success", TType.STRUCT, 0)
        _write_info(protocol, result)
    elif isinstance(result, list):
        protocol.writeFieldBegin("success", TType.LIST, 0)
        protocol.writeListBegin(TType.STRUCT, len(result))
        for item in result:
            _write_item(protocol, item)


def _write_item(protocol: TBinaryProtocol, item: Item) -> None:
    protocol.writeFieldBegin("data", TType.STRING, 1)
    protocol.writeBinary(item.data)
    protocol.writeFieldBegin("id", TType.I64, 2)
    protocol.writeI64(item.id)
    protocol.writeFieldStop()


def _write_info(protocol: TBinaryProtocol, info: QueueInfo) -> None:
    if info.head_item is not None:
        protocol.writeFieldBegin("head_item", TType.STRING, 1)
        protocol.writeBinary(info.head_item)
    for number, value in ((2, info.items), (3, info.bytes), (4, info.journal_bytes), (5, info.age)):
        protocol.writeFieldBegin("", TType.I64, number)
        protocol.writeI64(value)
    for number, value in ((6, info.waiters), (7, info.open_transactions)):
        protocol.writeFieldBegin("", TType.I32, number)
        protocol.writeI32(value)
    protocol.writeFieldStop()
