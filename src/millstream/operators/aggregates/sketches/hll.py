"""HyperLogLog: the approximate number of distinct hashes.

A hash of 64 bits has a register (its top `precision` bits) and a rank (1 + the number of
leading zeros of the other bits). A sketch holds the highest rank per register, as words of
`register << 6 | rank`; unused registers take no space. Merging keeps the highest word of each
register, which is order-free.

The estimate is Ertl's (2017, "New cardinality estimation algorithms for HyperLogLog
sketches", algorithm 6): unbiased from one value to billions, without tables. Its
standard error is 1.04 / sqrt(2^precision).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from millstream.state.spec import PEAK_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

LEAST_PRECISION, MOST_PRECISION = 7, 16
MOST = float(1 << 62)
_HASH_BITS = 64
_ERROR = 1.04
_RANK_MASK = (1 << PEAK_BITS) - 1
_AT_ONCE = 1 << 15


def precision_for(error: float) -> int:
    """The smallest precision whose standard error is at most `error`."""
    needed = math.ceil(2 * math.log2(_ERROR / error))
    return min(max(needed, LEAST_PRECISION), MOST_PRECISION)


def words(hashes: NDArray[np.uint64], precision: int) -> NDArray[np.int32]:
    """Each hash as its register and rank."""
    registers = hashes >> np.uint64(_HASH_BITS - precision)
    below = hashes << np.uint64(precision)
    ranks = np.minimum(_leading_zeros(below), _HASH_BITS - precision) + 1
    found: NDArray[np.int32] = (registers.astype(np.int64) << PEAK_BITS | ranks).astype(np.int32)
    return found


def estimates(
    words: NDArray[np.int64], groups: NDArray[np.int64], number: int, precision: int
) -> Doubles:
    """The approximate number of distinct hashes of each of `number` sketches, at most 2⁶².

    `words` are those of all sketches, one per register; `groups` is the sketch of each word,
    ascending.
    """
    edges = np.append(np.arange(0, number, _AT_ONCE), number)
    cuts = np.searchsorted(groups, edges)
    found = [
        _estimates(words[low:high], groups[low:high] - first, int(after - first), precision)
        for first, after, low, high in zip(edges[:-1], edges[1:], cuts[:-1], cuts[1:], strict=True)
    ]
    return np.concatenate([np.zeros(0), *found])


def _estimates(
    words: NDArray[np.int64], groups: NDArray[np.int64], number: int, precision: int
) -> Doubles:
    highest = _HASH_BITS - precision + 1
    width = highest + 1
    cells = groups * width + (words & _RANK_MASK)
    met = np.bincount(cells, minlength=number * width).reshape(number, width).astype(np.float64)
    registers = float(1 << precision)
    met[:, 0] = registers - met.sum(axis=1)
    total = registers * _tau(1.0 - met[:, highest] / registers)
    for rank in range(highest - 1, 0, -1):
        total = 0.5 * (total + met[:, rank])
    total += registers * _sigma(met[:, 0] / registers)
    scale = registers * registers / (2.0 * math.log(2.0))
    return scale / np.maximum(total, scale / MOST)


def _leading_zeros(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of leading zeros of each 64-bit value; 63 for zero."""
    zeros = np.zeros(len(values), dtype=np.int64)
    left = values.copy()
    for bits in (32, 16, 8, 4, 2, 1):
        short = left < (np.uint64(1) << np.uint64(_HASH_BITS - bits))
        zeros[short] += bits
        left[short] <<= np.uint64(bits)
    return zeros


def _sigma(share: Doubles) -> Doubles:
    """x + the sum of x^(2^k) * 2^(k-1) over k above 0; infinite at 1."""
    found, power, weight = share.copy(), share.copy(), 1.0
    with np.errstate(under="ignore"):
        while True:
            power = power * power
            before = found
            found = found + power * weight
            weight += weight
            if np.array_equal(before[share < 1], found[share < 1]):
                return np.where(share == 1, np.inf, found)


def _tau(share: Doubles) -> Doubles:
    """(1 - x - the sum of (1 - x^(2^-k))² * 2^-k over k above 0) / 3; 0 at 0 and 1."""
    root, found, weight = share.copy(), 1.0 - share, 1.0
    while True:
        root = np.sqrt(root)
        before = found
        weight *= 0.5
        found = found - (1.0 - root) ** 2 * weight
        if np.array_equal(before, found):
            return np.where((share == 0) | (share == 1), 0.0, found / 3.0)
