"""xxHash64 over many rows at a time: the function of Spark's `xxhash64`, in numpy.

Every function takes one seed per row and returns one hash per row, so values can be chained:
the hash of one is the seed of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]

SPARK_SEED = 42

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_P5_PLUS_8 = np.uint64(0x27D4EB2F165667CD)
_P1_PLUS_P2 = np.uint64(0x60EA27EEADC0B5D6)
_ZERO = np.zeros(1, dtype=np.uint64)
_STRIPE = 32


def hash_longs(values: NDArray[np.int64], seeds: U64) -> U64:
    """The hash of each 64-bit integer; a single seed or integer applies to all rows."""
    mixed = _round(_ZERO, values.view(np.uint64)) ^ (seeds + _P5_PLUS_8)
    mixed = _rotate(mixed, 27)
    mixed *= _P1
    mixed += _P4
    return _avalanche(mixed)


def hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seeds: U64
) -> U64:
    """The hash of each span of bytes; the loops run over bytes of a span, never over rows."""
    seeds = np.broadcast_to(seeds, lengths.shape)
    state = seeds + _P5
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        state[long] = _stripes(data, starts[long], lengths[long] // _STRIPE, seeds[long])
    state += lengths.view(np.uint64)
    at = starts + (lengths & ~np.int64(_STRIPE - 1))
    rest = lengths & np.int64(_STRIPE - 1)
    for word in range(int((rest >> 3).max(initial=0))):
        rows = np.flatnonzero((rest >> 3) > word)
        mixed = state[rows] ^ _round(_ZERO, _words(data, 8)[at[rows] + 8 * word])
        state[rows] = _rotate(mixed, 27) * _P1 + _P4
    at += rest & ~np.int64(7)
    rest &= np.int64(7)
    rows = np.flatnonzero(rest & 4)
    if len(rows):
        mixed = state[rows] ^ (_words(data, 4)[at[rows]].astype(np.uint64) * _P1)
        state[rows] = _rotate(mixed, 23) * _P2 + _P3
    at += rest & np.int64(4)
    rest &= np.int64(3)
    for byte in range(int(rest.max(initial=0))):
        rows = np.flatnonzero(rest > byte)
        mixed = state[rows] ^ (data[at[rows] + byte].astype(np.uint64) * _P5)
        state[rows] = _rotate(mixed, 11) * _P1
    return _avalanche(state)


def _stripes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], stripes: NDArray[np.int64], seeds: U64
) -> U64:
    """The state after the 32-byte stripes of spans that have at least one."""
    by_length = np.argsort(-stripes, kind="stable")
    at, seed = starts[by_length], seeds[by_length]
    still = np.searchsorted(-stripes[by_length], -np.arange(int(stripes.max())), side="left")
    lanes = np.stack([seed + _P1_PLUS_P2, seed + _P2, seed.copy(), seed - _P1])
    words = _words(data, 8)
    for stripe, active in enumerate(still):
        for lane in range(4):
            here = words[at[:active] + (_STRIPE * stripe + 8 * lane)]
            lanes[lane, :active] = _round(lanes[lane, :active], here)
    state: U64 = (
        _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    )
    for lane in range(4):
        state ^= _round(_ZERO, lanes[lane])
        state *= _P1
        state += _P4
    back = np.empty_like(state)
    back[by_length] = state
    return back


def _words(data: NDArray[np.uint8], width: int) -> NDArray[np.unsignedinteger]:
    """The little-endian word that begins at every byte of the data."""
    count = max(len(data) - width + 1, 0)
    return np.ndarray((count,), dtype=f"<u{width}", buffer=data, strides=(1,))


def _round(state: U64, value: U64) -> U64:
    mixed: U64 = value * _P2
    mixed += state
    mixed = _rotate(mixed, 31)
    mixed *= _P1
    return mixed


def _rotate(value: U64, bits: int) -> U64:
    turned: U64 = value << np.uint64(bits)
    turned |= value >> np.uint64(64 - bits)
    return turned


def _avalanche(state: U64) -> U64:
    state ^= state >> np.uint64(33)
    state *= _P2
    state ^= state >> np.uint64(29)
    state *= _P3
    state ^= state >> np.uint64(32)
    return state
