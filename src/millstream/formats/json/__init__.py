"""JSON: one object for each record; `docs/decisions/0004-json.md` says what each byte means."""

from millstream.formats.json.decode import check, decode, decode_exactly
from millstream.formats.json.encode import encode
from millstream.formats.json.format import Json

__all__ = ["Json", "check", "decode", "decode_exactly", "encode"]
