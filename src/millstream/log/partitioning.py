"""Which partition a key goes to.

`murmur2` is the default of Kafka's own clients: the same key goes to the same partition
whichever client sends it. `crc32` is the default of librdkafka. Both spread records without
a key; `round_robin` takes the partitions in turn, whatever the key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

from confluent_kafka import murmur2

from millstream.errors import InvalidInput, UserCodeFailed

Partitioner = Callable[[bytes | None, int], int]
Named = Literal["murmur2", "crc32", "round_robin"]

IN_LIBRDKAFKA = {"murmur2": "murmur2_random", "crc32": "consistent_random"}


def partition_of(key: bytes, partitions: int) -> int:
    """Where the default partitioner sends a key, without asking anyone.

    >>> partition_of(b"auction-7", 6)
    5
    """
    return murmur2(key, partitions)


def chooser(partitioner: Partitioner | Named) -> Partitioner | None:
    """The function to call for each record; None when librdkafka does it."""
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
