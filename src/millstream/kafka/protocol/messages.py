"""Requests and responses as bytes, in Kafka's classic and in its flexible encoding (KIP-482).

Classic lengths are INT16 (strings) and INT32 (arrays). Flexible versions write length + 1 as an
unsigned varint and end each structure with tagged fields; here their names begin with `compact`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

CLIENT_ID = "millstream"
NO_TAGS = b"\0"


class ProtocolError(OSError):
    """The broker sent bytes that are not a valid response, or closed the connection."""


class UnexpectedResponse(ProtocolError):
    """A response about something that was not requested; another connection would not help."""


class Api(NamedTuple):
    """One API of Kafka at one version."""

    key: int
    version: int
    flexible: bool = False


class Request(NamedTuple):
    """A request without its header."""

    api: Api
    body: bytes

    def encode(self, correlation_id: int) -> bytes:
        """The bytes to send: size, header, body."""
        header = struct.pack(">hhi", self.api.key, self.api.version, correlation_id)
        header += string(CLIENT_ID) + (NO_TAGS if self.api.flexible else b"")
        return struct.pack(">i", len(header) + len(self.body)) + header + self.body


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def nullable_string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else string(text)


def array(items: Iterable[bytes]) -> bytes:
    """An array of items that are encoded already."""
    encoded = list(items)
    return struct.pack(">i", len(encoded)) + b"".join(encoded)


def int32s(numbers: Iterable[int]) -> bytes:
    """An array of INT32."""
    return array(struct.pack(">i", number) for number in numbers)


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def compact_array(items: Iterable[bytes] | None) -> bytes:
    """An array of items that are encoded already; None is a null array."""
    if items is None:
        return unsigned_varint(0)
    encoded = list(items)
    return unsigned_varint(len(encoded) + 1) + b"".join(encoded)


def compact_int32s(numbers: Iterable[int] | None) -> bytes:
    """An array of INT32; None is a null array."""
    return compact_array(
        None if numbers is None else (struct.pack(">i", number) for number in numbers)
    )


class Reader:
    """Reads a response in the classic encoding, front to back.

    Lengths and counts are checked against the bytes that are left.

    Raises:
        ProtocolError: from every method, if the response ends too early or is malformed.
    """

    def __init__(self, response: memoryview) -> None:
        self._data, self._at = response, 0

    def fields(self, form: str) -> tuple[Any, ...]:
        """Fixed-size fields, described as in `struct`."""
        try:
            values = struct.unpack_from(f">{form}", self._data, self._at)
        except struct.error:
            raise ProtocolError("a response that ends too early") from None
        self._at += struct.calcsize(f">{form}")
        return values

    def field(self, form: str) -> Any:
        return self.fields(form)[0]

    def bytes(self, size: int) -> memoryview:
        """The next `size` bytes, not copied; none if `size` is negative, as for null."""
        size = max(0, size)
        if size > len(self._data) - self._at:
            raise ProtocolError("a response that ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def string(self) -> str:
        """A string; null reads as empty."""
        return self._text(self.field("h"))

    def array(self) -> range:
        """Iterate over this once per item of an array; a null array has none."""
        return self._items(self.field("i"))

    def int32s(self) -> tuple[int, ...]:
        """An array of INT32."""
        return tuple(self.field("i") for _ in self.array())

    def _text(self, size: int) -> str:
        try:
            return bytes(self.bytes(size)).decode()
        except UnicodeDecodeError:
            raise ProtocolError("a response with a string that is not UTF-8") from None

    def _items(self, count: int) -> range:
        if count > len(self._data) - self._at:  # each item has at least one byte
            raise ProtocolError("a response that ends too early")
        return range(max(0, count))


class CompactReader(Reader):
    """Reads a response in the flexible encoding, from the tagged fields of its header on."""

    def __init__(self, response: memoryview) -> None:
        super().__init__(response)
        self.tagged_fields()

    def unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte: int = self.field("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ProtocolError("a response with a varint of more than five bytes")

    def string(self) -> str:
        return self._text(self.unsigned_varint() - 1)

    def array(self) -> range:
        return self._items(self.unsigned_varint() - 1)

    def tagged_fields(self) -> None:
        """Skip them: none is used."""
        for _ in self._items(self.unsigned_varint()):
            self.unsigned_varint()
            self.bytes(self.unsigned_varint())
