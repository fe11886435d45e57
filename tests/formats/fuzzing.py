"""Decodes randomly damaged records, hostile and ordinary, within limits of memory and time.

`python -m tests.formats.fuzzing <target> <seed> <rounds>` exits with 0 if each record became a row
or a bad row, the same one alone and among others, within the limits.
"""

from __future__ import annotations

import resource
import sys
import time
from random import Random
from typing import Any

import pyarrow as pa
from tests.formats.hostile import Target, targets

ROOM = 3 << 30
SECONDS = 0.5
SECONDS_PER_MB = 8.0
_TOGETHER = 20


def damaged(random: Random, raw: bytes) -> bytes:
    made = bytearray(raw)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        place, choice = random.randint(0, len(made)), random.random()
        if choice < 0.2:
            del made[place:]
        elif choice < 0.4:
            del made[place : place + random.randint(1, 9)]
        elif choice < 0.6 and made:
            made[place % len(made)] = random.choice((0, 1, 8, 0x22, 0x5B, 0x7B, 0x7F, 0x80, 0xFF))
        elif choice < 0.8:
            made[place:place] = random.randbytes(random.randint(1, 11))
        else:
            made[place:place] = bytes(made[random.randint(0, len(made)) :])
    return bytes(made)


def one_round(random: Random, target: Target) -> None:
    """Decode some records together and a few at a time."""
    makers = list(target.hostile.values())
    sizes = [random.choice((1, 10, 100, 1000, 20_000)) for _ in range(60)]
    records: list[bytes | None] = [damaged(random, random.choice(makers)(size)) for size in sizes]
    records += [damaged(random, target.normal) for _ in range(30)] + [target.normal] * 30 + [None]
    random.shuffle(records)
    values = pa.array(records, random.choice((pa.binary(), pa.large_binary())))
    began = time.process_time()
    together = target.format.decode(values, target.schema)
    parts = [target.format.decode(values.slice(at, _TOGETHER).cast(pa.binary()), target.schema)
             for at in range(0, len(values), _TOGETHER)]  # fmt: skip
    seconds = time.process_time() - began
    assert seconds < SECONDS + SECONDS_PER_MB * values.nbytes / 2**20, (seconds, values.nbytes)
    assert together.good.size + together.bad.size == len(values)
    together.table.validate(full=True)
    bad = [at * _TOGETHER + n for at, part in enumerate(parts) for n in part.bad.tolist()]
    assert together.bad.tolist() == bad
    assert together.reasons == [reason for part in parts for reason in part.reasons]
    assert together.extra == sum(part.extra for part in parts)
    assert shown(together.table) == [row for part in parts for row in shown(part.table)]


def shown(table: pa.Table) -> list[Any]:
    """Rows as text, in which all NaN are equal."""
    return [repr(row) for row in table.to_pylist()]


def main(of: str, seed: int, rounds: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    target = targets()[of]
    for number in range(rounds):
        try:
            one_round(Random(f"{seed} {number}"), target)
        except BaseException:
            print(f"{of}: seed {seed}, round {number}", file=sys.stderr)
            raise


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
