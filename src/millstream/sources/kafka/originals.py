"""Fetches single records with all their parts, for dead rows.

Batches are read without keys and headers. A bad record is fetched again by its offset: from all
partitions at once, each in one pass that skips long gaps. If the records are large, they are
fetched partition by partition, as many as fit in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import DataGone
from millstream.sources.kafka.wire_fetch import WireFetcher
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.kafka.settings import Cluster

    Places = Mapping[int, Sequence[int]]

_GAP = 5_000
_MOST = 64 << 20  # bytes of records in memory
_ORDER = [("partition", "ascending"), ("offset", "ascending")]


def fetch(cluster: Cluster, topic: str, places: Places) -> pa.Table:
    """The records at these offsets (ascending in each partition), in that order: all of them, or
    the first 64 MB.

    Raises:
        DamagedLog: one of them cannot be read.
        DataGone: one of them no longer exists.
        NotFound: there is no such topic.
        Unavailable: no data for two minutes.
    """
    wanted = {p: sorted(set(offsets)) for p, offsets in sorted(places.items()) if offsets}
    if len(wanted) > 1:
        found = _together(cluster, topic, wanted)
        if found is not None:
            return found
    return _in_order(cluster, topic, wanted)


def _together(cluster: Cluster, topic: str, wanted: Places) -> pa.Table | None:
    """All records of several partitions; None if they are too large or some are missing."""
    tables, held = [raw_schema().empty_table()], 0
    try:
        for table in _records(cluster, topic, wanted):
            tables.append(table)
            held += table.nbytes
            if held > _MOST:
                return None
    except DataGone:
        return None
    found = pa.concat_tables(tables)
    complete = found.num_rows == sum(map(len, wanted.values()))
    return found.sort_by(_ORDER) if complete else None


def _in_order(cluster: Cluster, topic: str, wanted: Places) -> pa.Table:
    """The first records, partition by partition."""
    tables, held = [raw_schema().empty_table()], 0
    for partition, offsets in wanted.items():
        count = 0
        try:
            for table in _records(cluster, topic, {partition: offsets}):
                if table["offset"].to_pylist() != offsets[count : count + table.num_rows]:
                    break
                tables.append(table)
                held, count = held + table.nbytes, count + table.num_rows
                if held > _MOST:
                    return pa.concat_tables(tables)
        except DataGone:
            raise _gone(topic, partition, offsets[count]) from None
        if count < len(offsets):
            raise _gone(topic, partition, offsets[count])
    return pa.concat_tables(tables)


def _records(cluster: Cluster, topic: str, wanted: Places) -> Iterator[pa.Table]:
    """Yield the existing records in chunks, in order within each partition."""
    stretches = {partition: _stretches(offsets) for partition, offsets in wanted.items()}
    only = {partition: frozenset(offsets) for partition, offsets in wanted.items()}
    fetcher = WireFetcher(cluster, topic, only=only)
    try:
        for number in range(max(map(len, stretches.values()), default=0)):
            ranges = {p: some[number] for p, some in stretches.items() if number < len(some)}
            yield from fetcher.read(ranges, raw_schema().names)
    finally:
        fetcher.close()


def _stretches(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges without long gaps that contain these offsets."""
    found = [(offsets[0], offsets[0] + 1)]
    for offset in offsets[1:]:
        first, end = found[-1]
        if offset - end < _GAP:
            found[-1] = first, offset + 1
        else:
            found.append((offset, offset + 1))
    return found


def _gone(topic: str, partition: int, offset: int) -> DataGone:
    return DataGone(
        f"a bad row needs its record, {topic}/{partition} at offset {offset}",
        got="a log that no longer holds it",
        do="restart the job: the batch was not prepared yet and is planned again",
    )
