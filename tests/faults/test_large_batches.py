"""Three batches of 60 kB each unpack to 2.4 GB, more than one Arrow column of bytes can hold."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.appending import append, large

import millstream as ms
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.damaged import LostOffsets, skip_damaged
from millstream.kafka.settings import Cluster
from millstream.sources.kafka import originals
from millstream.sources.kafka.reader import TopicReader
from millstream.sources.kafka.wire_fetch import WireFetcher
from millstream.sources.spec import TooMuch
from millstream.viewing.pages import Pages
from millstream.viewing.selection import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

COLUMNS = ("value", "partition", "offset", "timestamp")
RECORDS, SIZE = 800, 1_000_000
MOST = 1536 << 20  # bytes of memory: much less than what is unpacked


@pytest.fixture(scope="module")
def unpacks_large(broker: ThrowAwayBroker) -> str:
    Topics(broker.address).create("unpacks-large")
    batch = large(RECORDS, lambda n: b'{"n":%d,"text":"%s"}' % (n, b"x" * SIZE))
    for _ in range(3):
        append(broker, "unpacks-large", batch)
    return "unpacks-large"


@pytest.mark.soak
@pytest.mark.parametrize("lane", ["narrow", "wide"])
def test_a_job_over_batches_that_unpack_to_gigabytes_needs_bounded_memory(
    lane: str, broker: ThrowAwayBroker, unpacks_large: str, tmp_path: Path
) -> None:
    Topics(broker.address).create(f"{unpacks_large}.out")
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.faults.large_job", broker.address, unpacks_large,
             str(tmp_path / "job"), lane],
            capture_output=True, text=True, timeout=1500, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert int(ended.stdout.splitlines()[-1]) < MOST
        out = ms.Consumer(f"{unpacks_large}.out", kafka=broker.address, until_end=True)
        found = [json.loads(record.value or b"") for record in out]
    finally:
        Topics(broker.address).delete(f"{unpacks_large}.out")

    rows = sorted((row["n"], row["size"]) for row in found)
    assert rows == [(n, SIZE) for n in range(RECORDS) for _ in range(3)]


def test_all_records_are_fetched_in_pieces(broker: ThrowAwayBroker, unpacks_large: str) -> None:
    fetcher, offsets = WireFetcher(Cluster(broker.address), unpacks_large), list[int]()
    for table in fetcher.read({0: (0, 3 * RECORDS)}, COLUMNS):
        assert table.nbytes < 64 << 20
        offsets += table["offset"].to_pylist()
    fetcher.close()

    assert offsets == list(range(3 * RECORDS))


def test_a_batch_too_large_for_the_driver_is_divided(
    broker: ThrowAwayBroker, unpacks_large: str
) -> None:
    reader = TopicReader(Cluster(broker.address), unpacks_large, "any")
    with pytest.raises(TooMuch) as more:
        reader.table({0: (5, 3 * RECORDS)})
    end = more.value.ends[0]
    table = reader.table({0: (5, end)})
    reader.close()

    assert table["offset"].to_pylist() == list(range(5, end))
    assert 64 << 20 <= table.nbytes < 128 << 20


def test_prefetched_records_are_divided(broker: ThrowAwayBroker, unpacks_large: str) -> None:
    ahead, at = WireFetcher(Cluster(broker.address), unpacks_large), 0
    for _ in range(3):
        found = ahead.following({0: at}, COLUMNS, least=1, most=4 << 20)
        assert found is not None
        ranges, table = found
        assert ranges[0][0] == at
        assert table["offset"].to_pylist() == list(range(*ranges[0]))
        assert table.nbytes < 128 << 20
        at = ranges[0][1]
    ahead.close()


def test_single_records_of_large_batches_are_fetched_with_bounded_memory(
    broker: ThrowAwayBroker, unpacks_large: str
) -> None:
    """librdkafka cannot unpack these batches."""
    cluster, last = Cluster(broker.address), 3 * RECORDS - 1
    found = originals.fetch(cluster, unpacks_large, {0: [0, last]})
    assert found["offset"].to_pylist() == [0, last]
    assert found["value"][1].as_py().startswith(b'{"n":%d,' % (RECORDS - 1))

    many = originals.fetch(cluster, unpacks_large, {0: range(RECORDS)})
    assert many["offset"].to_pylist() == list(range(many.num_rows))
    assert 64 << 20 <= many.nbytes < 128 << 20


def test_tail_and_consumers_skip_batches_that_their_client_cannot_unpack(
    broker: ThrowAwayBroker, unpacks_large: str
) -> None:
    """Their ends are read from their headers; finding them with the client took a minute each."""
    skipped: list[LostOffsets] = []
    cluster, began = Cluster(broker.address), time.monotonic()
    with ms.Consumer(unpacks_large, kafka=cluster, until_end=True) as consumer:
        seen = [record.offset for record in skip_damaged(consumer, cluster, skipped.append)]
    page = Pages(cluster, unpacks_large).before({0: 3 * RECORDS}, Selection(), 2)

    assert not seen
    assert [(one.first, one.next) for one in skipped] == [
        (n * RECORDS, (n + 1) * RECORDS) for n in range(3)
    ]
    assert not page.records
    assert page.lost
    assert time.monotonic() - began < 60
