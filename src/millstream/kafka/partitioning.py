"""Which partition a key goes to.

`murmur2` is the default of Kafka's own clients: the same key goes to the same partition
whichever client sends it. `crc32` is the default of librdkafka. Both distribute records without
a key over all partitions; `round_robin` ignores keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from confluent_kafka import murmur2

from millstream.errors import InvalidInput, UserCodeFailed

if TYPE_CHECKING:
    import pyarrow as pa

Partitioner = Callable[[bytes | None, int], int]
Named = Literal["murmur2", "crc32", "round_robin"]

IN_LIBRDKAFKA = {"murmur2": "murmur2_random", "crc32": "consistent_random"}
_SEED, _MIX, _SHIFT = np.uint32(0x9747B28C), np.uint32(0x5BD1E995), np.uint32(24)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key by the default partitioner.

    >>> partition_of(b"auction-7", 6)
    5
    """
    return murmur2(key, partitions)


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key by the default partitioner, vectorised over all keys."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset :][: len(keys) + 1]
    starts, sizes = bounds[:-1].astype(np.int64), np.diff(bounds)
    data = np.concatenate(
        [np.frombuffer(keys.buffers()[2] or b"", np.uint8), np.zeros(4, np.uint8)]
    )
    words = np.lib.stride_tricks.as_strided(data[:4].view("<u4"), (len(data) - 3,), (1,))
    hashes = _SEED ^ sizes.astype(np.uint32)
    for word in range(int(sizes.max(initial=0)) // 4):
        some = np.flatnonzero(sizes >= 4 * word + 4)
        mixed = words[starts[some] + 4 * word] * _MIX
        mixed = (mixed ^ (mixed >> _SHIFT)) * _MIX
        hashes[some] = (hashes[some] * _MIX) ^ mixed
    left = sizes % 4
    some = np.flatnonzero(left)
    last = words[starts[some] + sizes[some] - left[some]]
    kept = last & ((np.uint32(1) << (8 * left[some]).astype(np.uint32)) - np.uint32(1))
    hashes[some] = (hashes[some] ^ kept) * _MIX
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _MIX
    hashes ^= hashes >> np.uint32(15)
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def chooser(partitioner: Partitioner | Named) -> Partitioner | None:
    """The function to call for each record; None if librdkafka chooses."""
    if callable(partitioner):
        return _checked(partitioner)
    if partitioner == "round_robin":
        turns = itertools.count()
        return lambda _key, partitions: next(turns) % partitions
    if partitioner in IN_LIBRDKAFKA:
        return None
    raise InvalidInput(
        'partitioner needs "murmur2", "crc32", "round_robin" or a function of key and count',
        got=repr(partitioner),
    )


def _checked(partitioner: Partitioner) -> Partitioner:
    def choose(key: bytes | None, partitions: int) -> int:
        try:
            chosen = partitioner(key, partitions)
        except Exception as problem:
            raise UserCodeFailed(
                "the partitioner needs to return a partition for every key",
                got=f"{type(problem).__name__}: {problem} for key {key!r}",
            ) from problem
        if isinstance(chosen, bool) or not isinstance(chosen, int):
            raise InvalidInput(
                "the partitioner needs to return a whole number",
                got=f"{chosen!r} for key {key!r}",
            )
        if not 0 <= chosen < partitions:
            raise InvalidInput(
                f"the partitioner needs to return a partition from 0 to {partitions - 1}",
                got=f"{chosen} for key {key!r}",
            )
        return chosen

    return choose
