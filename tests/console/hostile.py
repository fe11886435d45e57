"""Hostile records, which must be shown bounded and escaped."""

from __future__ import annotations

import json

LEVELS = 200
HOSTILE: dict[str, bytes | None] = {
    "script": b'{"name": "<script>alert(1)</script>", "n": 1}',
    "image": b'<img src=x onerror="alert(1)">',
    "bidirectional": '{"name": "\u202eevil\u2066 \u200f", "n": 2}'.encode(),
    "bidirectional text": "safe \u202e exe.txt \x1b[31m red \x00".encode(),
    "line separators": '{"name": "a\u2028b\u2029c\\u2028"}'.encode(),
    "broken utf-8": b'{"name": "\xff\xfe"}',
    "half a surrogate": b'{"name": "\\ud800"}',
    "nan": b'{"n": NaN, "m": -Infinity}',
    "huge number": b'{"n": ' + b"9" * 6_000 + b"}",
    "precise number": b'{"n": 12345678901234567890.123456789}',
    "nested": b"[" * LEVELS + b"1" + b"]" * LEVELS,
    "nested beyond reason": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "unclosed": b"[" * 100_000,
    "same name twice": b'{"n": 1, "n": 2}',
    "empty": b"",
    "none": None,
    "byte order mark": b'\xef\xbb\xbf{"n": 1}',
    "prototype": b'{"__proto__": {"polluted": true}, "constructor": 1}',
    "end of stream": b'{"n": 1}\n\ndata: {"forged": true}\n\nevent: gone\n\n',
    "large": json.dumps({"name": "x" * 10_000_000}).encode(),
}
