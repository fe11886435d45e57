"""The checks of the Nexmark queries find faults; an interrupted row can be continued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from benchmarks.engines.spark_queries import highest_of_window
from benchmarks.queries import QUERIES, Answer
from benchmarks.unfinished import Unfinished
from tests.benchmarks.test_checks import filled

from benchmarks import report

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

Rows = list[dict[str, Any]]
DAY = "1970-01-01T00:00:"
BIDS: Rows = [{"auction": auction, "bidder": 7, "price": price, "ts": ts}
        for auction, price, ts in ((123, 1.5, 0), (2, 9.0, 900), (2, 4.0, 12_000), (5, 1.0, 30_000))
        ]  # fmt: skip
PERSONS: Rows = [{"id": number, "name": name, "ts": ts}
                 for number, name, ts in ((1, "Ann", 100), (2, "Bob", 11_000), (9, "Zoe", 40_000))
                 ]  # fmt: skip
AUCTIONS: Rows = [{"seller": seller, "ts": ts}
                  for seller, ts in ((1, 9_000), (1, 9_500), (2, 25_000), (8, 40_000))]  # fmt: skip
SOLD = {"auction": 2, "bidder": 7, "price": 9.0, "ts": f"{DAY}09.999999Z"}
LATER = {"auction": 2, "bidder": 7, "price": 4.0, "ts": f"{DAY}19.999999Z"}
RIGHT: dict[str, Rows] = {
    "q1": [{"auction": bid["auction"], "bidder": 7, "price": bid["price"] * 0.908,
            "ts": f"{DAY}{bid['ts'] / 1000:06.3f}Z"} for bid in BIDS],
    "q2": [{"auction": 123, "price": 1.5}],
    "q5": [{"window_start": f"1969-12-31T23:59:5{second}Z", "n": 1} for second in (2, 4, 6, 8)]
          + [{"window_start": f"{DAY}{second:02}Z", "n": 1} for second in (0, 4, 6, 8, 10, 12)],
    "q7": [SOLD, LATER],
    "q8": [{"window_start": f"{DAY}00Z", "id": 1, "name": "Ann"}],
}  # fmt: skip


def answer(address: str, name: str) -> Answer:
    rows = {"bids": BIDS, "persons": PERSONS, "auctions": AUCTIONS}
    topics = {kind: filled(address, rows[kind]) for kind in QUERIES[name].topics}
    return Answer(address, QUERIES[name], topics)


@pytest.mark.kafka
@pytest.mark.parametrize("name", QUERIES)
def test_an_answer_is_right_only_with_exactly_its_rows(broker: ThrowAwayBroker, name: str) -> None:
    expected, right = answer(broker.address, name), RIGHT[name]
    column = next(one for one in ("price", "n", "id") if one in right[0])
    wrong = {**right[0], column: right[0][column] + 1}

    def faults(rows: Rows) -> dict[str, int]:
        return dict(expected.check(filled(broker.address, rows))["faults"])

    assert faults(right) == {"missing": 0, "phantom": 0}
    assert faults(right[1:]) == {"missing": 1, "phantom": 0}
    assert faults([*right, right[0]]) == {"missing": 0, "phantom": 1}
    assert faults([*right[1:], wrong]) == {"missing": 1, "phantom": 1}


@pytest.mark.kafka
def test_an_engine_without_an_output_topic_misses_every_row(broker: ThrowAwayBroker) -> None:
    check = answer(broker.address, "q8").check("never-made")

    assert check == {"checked": 0, "faults": {"missing": 1, "phantom": 0}}
    assert report.verdict([{"check": check}]) == "VOID: missing 1"


@pytest.mark.kafka
def test_an_empty_answer_is_void_even_if_no_row_is_expected(broker: ThrowAwayBroker) -> None:
    topics = {"persons": filled(broker.address, PERSONS[:1]),
              "auctions": filled(broker.address, AUCTIONS[:1])}  # fmt: skip
    check = Answer(broker.address, QUERIES["q8"], topics).check("never-made")

    assert report.verdict([{"check": check}]) == "VOID: nothing to check"


@pytest.mark.kafka
def test_a_check_needs_the_topics_that_were_read(broker: ThrowAwayBroker) -> None:
    with pytest.raises(SystemExit, match="needs the topic never-filled"):
        Answer(broker.address, QUERIES["q2"], {"bids": "never-filled"})


class State:
    """The state that Spark passes to a function over groups."""

    hasTimedOut = exists = False  # noqa: N815
    get: tuple[Any, ...] = ()
    until = 0

    def update(self, value: tuple[Any, ...]) -> None:
        self.get, self.exists = value, True

    def remove(self) -> None:
        self.exists = False

    def setTimeoutTimestamp(self, at: int) -> None:  # noqa: N802
        self.until = at


def test_spark_keeps_all_bids_of_the_highest_price_from_batch_to_batch() -> None:
    state, highest = State(), highest_of_window()

    def bids(*pairs: tuple[int, float]) -> pd.DataFrame:
        return pd.DataFrame([{"first": 20_000, "auction": auction, "bidder": 7, "price": price,
                              "ts": pd.Timestamp(20_500, unit="ms")}
                             for auction, price in pairs])  # fmt: skip

    for frames in ([bids((1, 4.0), (2, 9.0)), bids((3, 9.0))], [bids((4, 9.0), (5, 8.0))]):
        assert list(highest((20_000,), iter(frames), state)) == []
    assert state.until == 30_000
    state.hasTimedOut = True
    [rows] = highest((20_000,), iter([]), state)

    assert sorted(rows["auction"]) == [2, 3, 4]
    assert list(rows.columns) == ["auction", "bidder", "price", "ts"]
    assert not state.exists


def test_a_row_continues_the_rounds_of_the_same_commit_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    first = Unfinished("tumbling", {"EVENTS": 10})
    first.add("millstream", {"cpu": 1.5})

    again, other = Unfinished("tumbling", {"EVENTS": 10}), Unfinished("tumbling", {"EVENTS": 11})

    assert again.round("millstream", 0) == {"cpu": 1.5}
    assert again.round("millstream", 1) is None
    assert again.round("spark-heap", 0) is None
    assert other.round("millstream", 0) is None

    again.end()
    assert Unfinished("tumbling", {"EVENTS": 10}).round("millstream", 0) is None
