"""Values that are created once per run, and unpickled once per Spark worker process.

So a decoder or compiled SQL keeps its caches from batch to batch: all tasks in a process share one
copy.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_KEPT = 64
_known: OrderedDict[str, PerRun[Any]] = OrderedDict()


class PerRun(Generic[T]):
    """A value that tasks share. It is sent as bytes and cached by their fingerprint."""

    def __init__(self, value: T, dumps: Callable[[T], bytes] | None = None) -> None:
        self.value, self._dumps = value, dumps

    @cached_property
    def _bytes(self) -> tuple[str, bytes]:
        from pyspark import cloudpickle

        pickled = (self._dumps or cloudpickle.dumps)(self.value)
        return hashlib.sha256(pickled).hexdigest(), pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, self._bytes


def _unpickled(fingerprint: str, pickled: bytes) -> PerRun[Any]:
    known = _known.get(fingerprint)
    if known is None:
        known = PerRun(pickle.loads(pickled))  # noqa: S301
        known.__dict__["_bytes"] = fingerprint, pickled
        _known[fingerprint] = known
        if len(_known) > _KEPT:
            _known.popitem(last=False)
    _known.move_to_end(fingerprint)
    return known
