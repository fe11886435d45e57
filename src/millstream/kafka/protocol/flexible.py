"""The newer form of Kafka's protocol: lengths are variable and one too large, tags follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.kafka.protocol.wire import Answer, WireError

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_TAGS = b"\0"


class Compact(Answer):
    """An answer in the newer form."""

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte: int = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise WireError("an answer with a number that does not end")

    def text(self) -> str:
        return self.words(self.varint() - 1)

    def count(self) -> range:
        return self.counted(self.varint() - 1)

    def numbers_list(self) -> tuple[int, ...]:
        return tuple(self.number("i") for _ in self.count())

    def tags(self) -> None:
        for _ in self.counted(self.varint()):
            self.varint()
            self.bytes(self.varint())


def many(parts: Iterable[bytes]) -> bytes:
    """A list of what is written already."""
    given = list(parts)
    return varint(len(given) + 1) + b"".join(given)


def text(text: str) -> bytes:
    """A text with its length."""
    return varint(len(text.encode()) + 1) + text.encode()


def varint(value: int) -> bytes:
    """A number in as few bytes as it needs."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
