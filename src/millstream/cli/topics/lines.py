"""Lines of text as records, checked before anything is sent.

A `Spool` holds a whole checked input, in memory while small and in a temporary file beyond,
so that sending begins only when every line is known to be good.
"""

from __future__ import annotations

import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from json import JSONDecodeError
from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.topics.bodies import Format
from millstream.errors import InvalidInput, SetupFailed
from millstream.viewing.escape import shortened
from millstream.viewing.fields import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO, Self

LONGEST_LINE = 16 * 1024 * 1024
IN_MEMORY = 8 * 1024 * 1024
_LENGTHS = struct.Struct("<ii")


class Entry(NamedTuple):
    """A record's key and value, ready to send."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Rules:
    """How a line is parsed into an entry."""

    form: Format = Format.json
    key: bytes | None = None
    separator: bytes | None = None
    empty_as_null: bool = False

    def entry(self, line: bytes, where: str) -> Entry:
        """Parse a line.

        Raises:
            InvalidInput: the line is malformed; names the line and the value.
        """
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise InvalidInput(
                    f"{where} needs a key, {_text(self.separator)} and a value",
                    got=_text(line),
                    do="correct it or leave out --key-separator",
                )
        if self.empty_as_null and not value:
            return Entry(key, None)
        if self.form is Format.json:
            _check_json(value, where)
        elif self.form is Format.hex:
            value = _from_hex(value, where)
        return Entry(key, value)


class Lines:
    """The entries of a stream, one per line; if values are JSON, blank lines are skipped."""

    def __init__(
        self,
        stream: BinaryIO,
        rules: Rules,
        on_invalid: Callable[[InvalidInput], None] | None = None,
    ) -> None:
        self._stream, self._rules, self._on_invalid = stream, rules, on_invalid
        self.blank = self.invalid = 0

    def __iter__(self) -> Iterator[Entry]:
        """One entry per line.

        Raises:
            InvalidInput: a line is malformed; names its number and text. With `on_invalid` that is
                called instead, and the next line is read.
        """
        number = 0
        while line := self._stream.readline(LONGEST_LINE + 1):
            number += 1
            body = line.removesuffix(b"\n").removesuffix(b"\r")
            if self._rules.form is Format.json and not body.strip():
                self.blank += 1
                continue
            try:
                entry = self._entry(body, number)
            except InvalidInput as error:
                if self._on_invalid is None:
                    raise
                self.invalid += 1
                self._on_invalid(error)
            else:
                yield entry

    def _entry(self, body: bytes, number: int) -> Entry:
        if len(body) > LONGEST_LINE:
            raise InvalidInput(
                f"line {number} needs to be at most {LONGEST_LINE // 2**20} MB long",
                got=_text(body[:80]) + "…",
                do="send one record per line",
            )
        return self._rules.entry(body, f"line {number}")


def _check_json(value: bytes, where: str) -> None:
    try:
        strict_json(value)
    except ValueError as error:
        raise InvalidInput(
            f"{where} needs JSON",
            got=f"{_text(value)} ({_reason(error)})",
            do="correct it, or send plain text with --format text",
        ) from None


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8"
    if isinstance(error, JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
    return str(error)


def _from_hex(value: bytes, where: str) -> bytes:
    try:
        return bytes.fromhex(value.decode("ascii"))
    except ValueError:
        raise InvalidInput(
            f"{where} needs pairs of hexadecimal digits", got=_text(value), do="correct it"
        ) from None


def _text(raw: bytes) -> str:
    return shortened(raw.decode("utf-8", "backslashreplace"))


class Spool:
    """Entries buffered in input order."""

    def __init__(self, source: Iterable[Entry]) -> None:
        self.count = 0
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        try:
            for entry in source:
                self._add(entry)
        except OSError as error:
            with suppress(OSError):
                self._file.close()
            raise SetupFailed(
                "produce needs disk space to buffer its input until all of it is checked",
                got=error.strerror or str(error),
                do="free some space, set TMPDIR to another disk, or use --partial",
            ) from error
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Entry]:
        self._file.seek(0)
        while lengths := self._file.read(_LENGTHS.size):
            key, value = _LENGTHS.unpack(lengths)
            yield Entry(self._part(key), self._part(value))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _add(self, entry: Entry) -> None:
        self._file.write(_LENGTHS.pack(*(-1 if part is None else len(part) for part in entry)))
        for part in entry:
            self._file.write(part or b"")
        self.count += 1

    def _part(self, length: int) -> bytes | None:
        return None if length < 0 else self._file.read(length)
