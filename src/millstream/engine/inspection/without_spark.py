"""Whether the driver can run the stages of a pipeline: while Spark starts, or instead of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.inspection.sql_placement import in_java

if TYPE_CHECKING:
    from millstream.plan.stages import Stages


def without_spark(stages: Stages) -> bool:
    """Whether Arrow can run every stateless step."""
    return not in_java(stages)
