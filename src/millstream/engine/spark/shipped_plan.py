"""A run's plan as it is sent to Spark's workers: without its sources and sinks.

Tasks read records by what `ReadsInTasks` gives, and write staged files. Sources and sinks may hold
rows, connections or functions that cannot be pickled; of those only the names are sent.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec
from millstream.plan.graph import Node, Output
from millstream.sinks.spec import Discard

if TYPE_CHECKING:
    from millstream.engine.stage_runs import RunPlan

_LEFT_BEHIND = ("source", "sink", "rest")


@dataclass(frozen=True, slots=True)
class Named:
    """A source or a sink that stays on the driver."""

    name: str


def plan_bytes(plan: RunPlan) -> bytes:
    """The plan, pickled.

    Raises:
        InvalidSpec: a function of the user's holds what cannot be sent.
    """
    from pyspark.cloudpickle import CloudPickler

    class Pickler(CloudPickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, Node | Output):
                return _new, (type(obj),), {**vars(obj), **_names(obj)}
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    with io.BytesIO() as out:
        try:
            Pickler(out).dump(plan)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise InvalidSpec(
                "functions of a pipeline need to be sent to Spark's workers",
                got=str(error).partition("\n")[0],
                do="open connections, files and locks inside the function, or run with "
                'engine="driver"',
            ) from error
        return out.getvalue()


def _names(obj: Node | Output) -> dict[str, Any]:
    return {
        name: Named(getattr(value, "name", ""))
        for name in _LEFT_BEHIND
        if (value := vars(obj).get(name)) is not None and not isinstance(value, Discard)
    }


def _new(kind: type) -> Any:
    return object.__new__(kind)
