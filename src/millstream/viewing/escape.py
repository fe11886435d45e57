"""Escaping of untrusted text, so that records cannot send control sequences to a terminal."""

from __future__ import annotations

import codecs
import re

# Control characters (C0, DEL, C1), marks that reverse or hide text, line separators,
# half surrogates and invisible tags.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_STEP = 65_536
_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """The text on one line, with control characters escaped.

    >>> one_line("red \\x1b[31m\\nnext")
    'red \\\\x1b[31m\\\\nnext'
    """
    return _UNSAFE.sub(lambda found: _written_out(found.group()), text)


def decoded(raw: bytes) -> str:
    """Bytes as text; bytes that are not UTF-8 appear as `\\xff`.

    The same as Python's "backslashreplace", but in steps between which other threads can run: a
    million such bytes take half a second.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        steps = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        parts = [steps.decode(raw[at : at + _STEP]) for at in range(0, len(raw), _STEP)]
        parts.append(steps.decode(b"", final=True))
        return "".join([part.translate(_BYTES) for part in parts])


def readable(raw: bytes) -> str:
    """Bytes as one escaped line; bytes that are not UTF-8 appear as `\\xff`."""
    return one_line(decoded(raw))


def in_json(text: str) -> str:
    """JSON text with control characters as `\\uXXXX`, which is the same JSON."""
    return _UNSAFE.sub(lambda found: _json_escape(found.group()), text)


def harmless(text: str) -> str:
    """Control characters as `\\uXXXX` except line breaks and tabs; JSON stays the same JSON.

    >>> harmless('{\\n  "name": "\u202eevil"}')
    '{\\n  "name": "\\\\u202eevil"}'
    """
    return _UNSAFE.sub(lambda found: _kept_or_escaped(found.group()), text)


def shortened(text: str, limit: int = 60) -> str:
    """The text quoted for an error message; a long one is cut, and its length is given."""
    shown = one_line(text)
    return f"'{shown}'" if len(shown) <= limit else f"'{shown[:limit]}…' ({len(text)} characters)"


def _written_out(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _kept_or_escaped(character: str) -> str:
    return character if character in _SHORT else _json_escape(character)


def _json_escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
