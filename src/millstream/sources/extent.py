"""Checks that a source still holds the records that a job has not read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import DataGone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sources.spec import Extent


def check_extent(
    topic: str, extent: Extent, wanted: Mapping[int, int], identity: str | None
) -> None:
    """Check that the log still holds every record from the `wanted` offsets on.

    Raises:
        DataGone: the topic was recreated, or records were deleted before they were read.
    """
    if identity is not None and extent.identity is not None and identity != extent.identity:
        raise DataGone(
            f"the job needs the topic {topic!r} it began with (id {identity})",
            got=f"another one of that name (id {extent.identity})",
            do="continue with the new one from its beginning by `millstream run … --skip-lost`, "
            "or start with a fresh --checkpoint",
        )
    for partition, offset in wanted.items():
        if partition not in extent.first:
            raise DataGone(f"the job needs partition {partition} of the topic {topic!r}",
                           got="a topic without it",
                           do="continue without it by `millstream run … --skip-lost`")  # fmt: skip
        if offset < extent.first[partition]:
            raise DataGone(
                f"the job needs {topic}/{partition} from offset {offset} on",
                got=f"a log that begins at {extent.first[partition]}: "
                f"{extent.first[partition] - offset} records are gone",
                do="continue without them by `millstream run … --skip-lost`, or start with a "
                "fresh --checkpoint, and give the topic a longer retention",
            )
