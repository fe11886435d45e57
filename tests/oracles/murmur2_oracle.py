"""MurmurHash2 as Kafka's Java client computes it, word by word with signed Java ints."""

from __future__ import annotations

import struct


def java_hash(key: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, as a signed 32-bit int."""
    h = _int(0x9747B28C ^ len(key))
    words = len(key) // 4
    for (word,) in struct.iter_unpack("<i", key[: words * 4]):
        k = _int(word * 0x5BD1E995)
        k = _int((k ^ _unsigned_shift(k, 24)) * 0x5BD1E995)
        h = _int(_int(h * 0x5BD1E995) ^ k)
    rest = key[words * 4 :]
    if len(rest) == 3:
        h = _int(h ^ (rest[2] << 16))
    if len(rest) >= 2:
        h = _int(h ^ (rest[1] << 8))
    if len(rest) >= 1:
        h = _int(_int(h ^ rest[0]) * 0x5BD1E995)
    h = _int((h ^ _unsigned_shift(h, 13)) * 0x5BD1E995)
    return _int(h ^ _unsigned_shift(h, 15))


def java_partition(key: bytes, partitions: int) -> int:
    """`toPositive(murmur2(key)) % partitions`."""
    return (java_hash(key) & 0x7FFFFFFF) % partitions


def _int(number: int) -> int:
    signed: int = struct.unpack("<i", struct.pack("<I", number & 0xFFFFFFFF))[0]
    return signed


def _unsigned_shift(number: int, bits: int) -> int:
    return (number & 0xFFFFFFFF) >> bits
