"""Fuzzes the reader of record batches with mutated batches, under a memory limit.

`python -m tests.kafka.mutations SEED COUNT [broker]` exits with 0 if each of COUNT mutated
fetches gave exactly the records that the oracle finds in it, or the one error where the oracle
finds none. With `broker` they come over a socket, through the client that pipelines read with.
Arrow's own allocator reserves addresses by the gigabyte: ARROW_DEFAULT_MEMORY_POOL is "system".
"""

from __future__ import annotations

import random
import resource
import signal
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c
from tests.kafka.batch_writing import CODECS, Whole, Written, packed
from tests.kafka.fake_broker import Log, broker
from tests.oracles import batches_oracle as oracle

from millstream.errors import DamagedLog
from millstream.kafka.protocol import record_batches, record_starts
from millstream.kafka.protocol.batch_headers import BadBatch, UnknownFormat, batches
from millstream.kafka.protocol.record_batches import pieces
from millstream.kafka.settings import Cluster
from millstream.sources.kafka.wire_fetch import WireFetcher

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1 << 30  # bytes of address space beyond what the process has when it begins
SECONDS = 20  # a single fetch of some kilobytes takes no longer
_HEADER = 61
_ODD = (0, 1, 2, 7, 49, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 12, 2**32 - 1)
# Where a header's numbers lie, and how wide they are.
_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8),
           (51, 2), (53, 4), (57, 4))  # fmt: skip

_SIZES = {"least": 1, "most": 1 << 20}

AFTER = Whole(5000, (Written(0, b"after" * 9, b"key"),)).bytes()
FURTHEST = 2**63 // 1000 - 1  # milliseconds whose microseconds fit into 64 bits

Outcome = list[tuple[int, int, bytes | None, bytes | None]] | str


@dataclass(frozen=True)
class Mutated:
    """A fetch of two batches, the first of which was changed."""

    what: str
    fetched: bytes


def mutated(chance: random.Random) -> Mutated:
    """A random mutation of a batch, which sometimes changes nothing."""
    codec = chance.choice(list(CODECS))
    first = _whole(chance, 1000, codec)
    batch = bytearray(first.bytes())
    kind = chance.choice(("header", "bytes", "records", "cut", "grown", "claims", "none"))
    if kind == "header":
        at, width = chance.choice(_FIELDS)
        value = chance.choice(_ODD) if chance.random() < 0.7 else chance.getrandbits(8 * width)
        batch[at : at + width] = (value % 256**width).to_bytes(width, "big")
    elif kind == "bytes":
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            batch[chance.randrange(len(batch))] = chance.choice((0, 1, 127, 128, 255,
                                                                chance.randrange(256)))  # fmt: skip
    elif kind == "records":
        records = _changed(chance, bytearray(b"".join(one.raw() for one in first.records)))
        batch[_HEADER:] = packed(bytes(records), codec)
        _sized(batch)
    elif kind == "claims":  # offsets enough for more records than there are
        count = chance.choice((60, 1 << 16, 1 << 24, 2**31 - 1))
        struct.pack_into(">i", batch, 23, 2**31 - 1)
        struct.pack_into(">i", batch, 57, chance.choice((len(first.records), count)))
    elif kind == "cut":
        del batch[chance.randrange(_HEADER, len(batch) + 1) :]
        _sized(batch)
    elif kind == "grown":
        batch += chance.choice((b"\0", b"garbage", bytes(chance.randrange(30)), bytes(batch[61:])))
        _sized(batch)
    summed = chance.random() < 0.85
    if summed and len(batch) >= _HEADER:
        batch[17:21] = struct.pack(">I", google_crc32c.value(bytes(batch[21:])))
    what = f"{kind} {codec} {'with' if summed else 'without'} its sum"
    return Mutated(what, bytes(batch) + AFTER)


def _whole(chance: random.Random, base: int, codec: str) -> Whole:
    delta, written = 0, []
    for _ in range(chance.choice((1, 2, 5, 20, 60))):
        value = chance.choice(
            (None, b"", b"x", b'{"a":1}', b"\0" * 20, b"v" * chance.randrange(90))
        )
        headers = chance.choice(((), (), (), ((b"h", b"1"),), ((b"h", None), (b"", b"z" * 70))))
        stamp = chance.choice((0, 5, -3, 10**6))
        written.append(Written(delta, value, chance.choice((None, b"k", b"")), stamp, headers))
        delta += chance.choice((1, 1, 1, 3))
    return Whole(base, tuple(written), codec, extra_delta=chance.choice((0, 0, 2)),
                 appended_at=chance.choice((None, None, 77)),
                 producer=chance.choice((None, None, 9)))  # fmt: skip


def _changed(chance: random.Random, data: bytearray) -> bytearray:
    """Change numbers in the records, or remove or duplicate pieces."""
    at = chance.randrange(len(data))
    way = chance.randrange(5)
    if way == 0:
        data[at] = chance.choice((0, 1, 2, 3, 23, 127, 128, 254, 255, chance.randrange(256)))
    elif way == 1:
        del data[at : at + chance.choice((1, 2, 9))]
    elif way == 2:
        data[at:at] = data[at : at + chance.choice((1, 2, 9, 40))]
    elif way == 3:
        data[at : at + 1] = b"\xff" * chance.choice((3, 4, 5, 9, 10, 11)) + b"\x01"
    else:
        data[at : at + 1] = chance.choice((b"\x80\x00", b"\xfe\xff\xff\xff\x0f",
                                           b"\x80\x80\x80\x80\x10"))  # fmt: skip
    return data


def _sized(batch: bytearray) -> None:
    batch[8:12] = struct.pack(">i", len(batch) - 12)


def meant(fetched: bytes) -> Outcome:
    """The result of the oracle."""
    try:
        return [(*row,) for row in oracle.rows(fetched)]
    except oracle.Malformed:
        return "damaged"
    except oracle.OldFormat:
        return "old"


def found(fetched: bytes) -> Outcome:
    """The result of the reader."""
    view = memoryview(bytearray(fetched))
    rows: list[tuple[int, int, bytes | None, bytes | None]] = []
    try:
        for piece in pieces(view, batches(view), [], -(2**63), 2**63 - 1, keys=True):
            assert piece.keys is not None
            rows += zip(piece.offsets.tolist(), piece.timestamps.tolist(), piece.keys.to_pylist(),
                        piece.values.to_pylist(), strict=True)  # fmt: skip
    except BadBatch:
        return "damaged"
    except UnknownFormat:
        return "old"
    return rows


def agree(found: Outcome, meant: Outcome, fetched: bytes) -> bool:
    """Whether the client of pipelines is right. It may refuse a batch at an offset where no
    broker stores one; times out of the range of microseconds become the nearest in range."""
    if isinstance(meant, str) or found == "damaged":
        return found == meant or (found == "damaged" and not _placed(fetched))
    held = [(offset, min(max(stamp, -FURTHEST), FURTHEST), key, value)
            for offset, stamp, key, value in meant]  # fmt: skip
    return found == held


def _placed(fetched: bytes) -> bool:
    """Whether the first batch begins and ends at the right byte and offset."""
    base, size = struct.unpack_from(">qi", fetched)
    (last,) = struct.unpack_from(">i", fetched, 23)
    return bool(base == 1000 and 0 <= last < 4000 and 12 + size + len(AFTER) == len(fetched))


class Fetched:
    """The result of the client of pipelines, over a socket."""

    COLUMNS = ("key", "value", "offset", "timestamp")

    def __init__(self, address: str, said: Log) -> None:
        self._said, self._fetcher = said, WireFetcher(Cluster(address), "t")

    def __call__(self, fetched: bytes) -> Outcome:
        self._said.records = fetched
        rows: list[tuple[int, int, bytes | None, bytes | None]] = []
        first = 0
        try:
            while (got := self._fetcher.following({0: first}, self.COLUMNS, **_SIZES)) is not None:
                ranges, table = got
                first = ranges[0][1]
                stamps = table["timestamp"].cast("int64").to_numpy() // 1000
                rows += zip(table["offset"].to_pylist(), stamps.tolist(),
                            table["key"].to_pylist(), table["value"].to_pylist(),
                            strict=True)  # fmt: skip
        except DamagedLog:
            return "damaged"
        except UnknownFormat:
            return "old"
        return rows


def limited() -> None:
    """Limit memory and the time of each fetch."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + LIMIT, held + LIMIT))


def main(seed: int, count: int, *, by_broker: bool = False) -> int:
    """How many results differ from the oracle's."""
    if not by_broker:
        return thrown(seed, count, found, lambda found, meant, _: found == meant)
    said = Log()
    with broker(said) as address:
        return thrown(seed, count, Fetched(address, said), agree)


def thrown(
    seed: int, count: int, found: Callable[[bytes], Outcome],
    right: Callable[[Outcome, Outcome, bytes], bool],
) -> int:  # fmt: skip
    """For how many of these mutations the reader and the oracle differ."""
    wrong, seen = 0, {"damaged": 0, "old": 0, "rows": 0}
    found(mutated(random.Random(0)).fetched)
    limited()
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        record_batches._FEW = chance.choice((-1, 32))
        record_starts._FEW = chance.choice((1, 512))
        record_starts._STRETCH = chance.choice((12, 48))
        vars(record_batches)["PIECE"] = chance.choice((60, 400, 16 << 20))
        one = mutated(chance)
        signal.alarm(SECONDS)
        is_found, is_meant = found(one.fetched), meant(one.fetched)
        signal.alarm(0)
        seen[is_found if isinstance(is_found, str) else "rows"] += 1
        if not right(is_found, is_meant, one.fetched):
            wrong += 1
            print(f"seed {seed}, number {number}: {one.what}: {one.fetched.hex()}")
            print(f"  found {str(is_found)[:300]}\n  meant {str(is_meant)[:300]}")
    print(f"seed {seed}: {count} mutations, {seen}, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    how = main(int(sys.argv[1]), int(sys.argv[2]), by_broker="broker" in sys.argv[3:])
    sys.exit(1 if how else 0)
