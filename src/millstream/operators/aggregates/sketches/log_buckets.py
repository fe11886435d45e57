"""Numbers counted in logarithmic buckets, as DDSketch does: quantiles within a relative error.

Bucket i of a magnitude holds (g^(i-1), g^i] with g = (1 + error) / (1 - error). Its value is
2 g^i / (g + 1), which is within `error` of every number in it. Buckets are integers in the
order of their numbers: −∞, negatives, zero, positives, +∞, NaN.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

LEAST = sys.float_info.min
_MOST = sys.float_info.max
INFINITE, NAN = 2**30, 2**30 + 1


@dataclass(frozen=True, slots=True)
class LogBuckets:
    """Buckets for one relative error; magnitudes below 2.3e-308 are in the bucket of zero."""

    error: float

    @property
    def _growth(self) -> float:
        """The natural logarithm of g."""
        return math.log1p(self.error) - math.log1p(-self.error)

    @property
    def _lowest(self) -> int:
        """The bucket of the smallest magnitude minus 1: buckets of positive numbers begin at 1."""
        return math.ceil(math.log(LEAST) / self._growth) - 1

    def of(self, values: Doubles) -> NDArray[np.int32]:
        """The bucket of each number."""
        sizes = np.abs(values)
        counted = np.where((sizes >= LEAST) & (sizes <= _MOST), sizes, 1.0)
        places = np.ceil(np.log(counted) / self._growth).astype(np.int64) - self._lowest
        places = np.where(sizes >= LEAST, places, 0)
        places = np.where(np.isinf(sizes), INFINITE, places)
        signed = np.where(values < 0, -places, places)
        return np.where(np.isnan(values), NAN, signed).astype(np.int32)

    def numbers(self, buckets: NDArray[np.int64]) -> Doubles:
        """The value of each bucket."""
        sizes = np.abs(buckets)
        places = np.where(sizes < INFINITE, sizes, 1) + self._lowest
        middle = math.log(2.0) - math.log1p(math.exp(self._growth))
        with np.errstate(over="ignore"):
            found = np.exp(places * self._growth + middle)
        found = np.clip(found, LEAST, _MOST)
        found = np.where(sizes == 0, 0.0, found)
        found = np.where(sizes == INFINITE, np.inf, found)
        found = np.where(buckets < 0, -found, found)
        return np.where(buckets == NAN, np.nan, found)
