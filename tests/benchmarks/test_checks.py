"""The benchmarks' checks find wrong answers, which make a cell void."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.oracle import Counts, Windows, check_sums
from benchmarks.report import percentiles, verdict

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker

BIDS = [{"auction": auction, "price": 2.5, "ts": ts} for ts in (0, 500, 1_000, 2_500)
        for auction in (1, 2)]  # fmt: skip
RIGHT = [{"auction": auction, "window_start": f"1970-01-01T00:00:0{second}.000Z", "n": n,
          "total": 2.5 * n} for second, n in ((0, 2), (1, 1)) for auction in (1, 2)]  # fmt: skip


def filled(address: str, rows: list[dict[str, Any]]) -> str:
    topic = f"checked-{uuid.uuid4().hex[:8]}"
    Topics(address).create(topic, partitions=1)
    with Producer(address) as producer:
        producer.send_many(topic, [json.dumps(row).encode() for row in rows])
    return topic


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("out", "faults"),
    [
        (RIGHT, {"missing": 0, "twice": 0, "wrong": 0}),
        (RIGHT[1:], {"missing": 1, "twice": 0, "wrong": 0}),
        ([*RIGHT, RIGHT[0]], {"missing": 0, "twice": 1, "wrong": 0}),
        ([*RIGHT[1:], {**RIGHT[0], "n": 3}], {"missing": 0, "twice": 0, "wrong": 1}),
        ([*RIGHT[1:], {**RIGHT[0], "total": 5.1}], {"missing": 0, "twice": 0, "wrong": 1}),
        ([*RIGHT, {**RIGHT[0], "auction": 9}], {"missing": 0, "twice": 0, "wrong": 1}),
        ([], {"missing": 4, "twice": 0, "wrong": 0}),
    ],
    ids=["right", "one missing", "one twice", "a count", "a sum", "a key too many", "nothing"],
)
def test_missing_repeated_and_wrong_windows_are_found(
    broker: ThrowAwayBroker, out: list[dict[str, Any]], faults: dict[str, int]
) -> None:
    expected = Windows(broker.address, filled(broker.address, BIDS), window_ms=1_000, delay_ms=0)

    assert expected.due == 4
    assert expected.check(filled(broker.address, out))["faults"] == faults


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("out", "faults"),
    [
        ([(1, 4), (2, 4)], {"missing": 0, "wrong": 0, "twice": 0}),
        ([(1, 4)], {"missing": 1, "wrong": 0, "twice": 0}),
        ([(1, 4), (2, 5)], {"missing": 0, "wrong": 1, "twice": 0}),
        ([(1, 4), (2, 4), (2, 4)], {"missing": 0, "wrong": 0, "twice": 1}),
    ],
    ids=["right", "one missing", "a count", "one twice"],
)
def test_missing_repeated_and_wrong_counts_are_found(
    broker: ThrowAwayBroker, out: list[tuple[int, int]], faults: dict[str, int]
) -> None:
    expected = Counts(broker.address, filled(broker.address, BIDS))
    rows = [{"auction": auction, "n": n} for auction, n in out]

    assert expected.check(filled(broker.address, rows))["faults"] == faults


def test_a_sum_that_differs_by_more_than_its_order_is_wrong() -> None:
    assert check_sums([3, 10.0], [3, 10.0 + 1e-12])["faults"] == {"wrong columns": 0}
    assert check_sums([3, 10.0], [3, 10.1])["faults"] == {"wrong columns": 1}


def test_a_cell_is_void_after_a_fault_in_any_round_or_without_anything_to_check() -> None:
    good = {"check": {"checked": 5, "faults": {"wrong": 0}}}
    bad = {"check": {"checked": 5, "faults": {"wrong": 2}}}
    empty = {"check": {"checked": 0, "faults": {"wrong": 0}}}

    assert verdict([good, good]) == "right (5 checked)"
    assert verdict([good, bad]) == "VOID: wrong 2"
    assert verdict([good, empty]) == "VOID: nothing to check"


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    assert percentiles([float(n) for n in range(1, 101)], 50, 95, 99) == {
        "p50": 50.0,
        "p95": 95.0,
        "p99": 99.0,
    }
    assert percentiles([7.0], 50, 99) == {"p50": 7.0, "p99": 7.0}
    assert percentiles([float(n) for n in range(1, 2001)], 99.9) == {"p99.9": 1998.0}
