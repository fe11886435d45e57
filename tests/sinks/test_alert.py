"""`Alert`: episodes that do not depend on how rows are cut into batches."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.oracles import alerts_oracle as oracle
from tests.sinks.alerting import SECOND, Observed, alert, at, batch, news, played, running, until

from millstream.sinks import notice_writer
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from tests.sinks.receiving import Receiver

pytestmark = pytest.mark.usefixtures("own_home")


def test_an_alert_fires_and_is_resolved_once_per_key(receiver: Receiver) -> None:
    told = played(
        receiver, alert(receiver),
        [("/", 1, 3), ("/cart", 1, 9)], [("/cart", 2, 9)], [("/cart", 3, 8), ("/", 3, 9)],
        [("/cart", 4, 1), ("/", 4, 9)],
    )  # fmt: skip
    assert told == [
        ("/cart", "firing", at(1)), ("/", "firing", at(3)), ("/cart", "resolved", at(4)),
    ]  # fmt: skip


def test_it_fires_only_after_it_was_true_for_long_enough(receiver: Receiver) -> None:
    sink = alert(receiver, for_="3 seconds")
    told = played(receiver, sink, [("/", 1, 9), ("/", 2, 9)], [("/", 3, 1), ("/", 4, 9)],
                  [("/", 6, 9)], [("/", 7, 9)], [("/", 9, 9), ("/", 10, 1)])  # fmt: skip
    assert told == [("/", "firing", at(7)), ("/", "resolved", at(10))]


def test_what_flaps_is_told_once_and_what_stays_is_told_after_the_hold(receiver: Receiver) -> None:
    flapping = [("/", second, 9 if second % 2 else 1) for second in range(1, 30)]
    sink = alert(receiver, hold="30 seconds")
    told = played(receiver, sink, flapping, [("/", second, 9) for second in range(30, 40)])
    assert told == [("/", "firing", at(1)), ("/", "resolved", at(2)), ("/", "firing", at(32))]


def test_clears_keeps_it_firing_until_it_is_well_below(receiver: Receiver) -> None:
    sink = alert(receiver, clears="n < 2")
    told = played(receiver, sink, [("/", 1, 9)], [("/", 2, 4)], [("/", 3, 3)], [("/", 4, 1)])
    assert told == [("/", "firing", at(1)), ("/", "resolved", at(4))]


def test_a_row_taken_back_resolves_it(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/cart", 1, 9)]))
    signs = pa.array([-1, -1, 1], pa.int8())
    rows = [("/", 1, 9), ("/cart", 1, 9), ("/cart", 1, 8)]
    writer.write("i2", 2, batch(sink, rows, _sign=signs))
    writer.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/cart", "firing", at(1)),
                              ("/", "resolved", at(1))]  # fmt: skip


def test_the_order_of_rows_of_one_moment_does_not_matter(receiver: Receiver) -> None:
    sink = alert(receiver, by=[])
    told = played(receiver, sink, [("/", 1, 9), ("/cart", 1, 1)], [("/cart", 2, 1), ("/", 2, 9)],
                  [("/", 3, 2), ("/cart", 3, 1)])  # fmt: skip
    assert told == [("", "firing", at(1)), ("", "resolved", at(3))]


def test_what_is_given_and_taken_back_in_one_batch_raises_nothing(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    signs = pa.array([1, -1, 1], pa.int8())
    writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/", 1, 9), ("/", 1, 3)], _sign=signs))
    writer.write("i2", 2, batch(sink, [("/", 2, 9), ("/", 2, 9)], _sign=signs[:2]))
    writer.close()
    assert news(receiver) == []


def test_an_early_pane_raises_and_only_a_whole_window_or_its_correction_clears(
    receiver: Receiver,
) -> None:
    sink = alert(receiver)
    writer = running(sink)
    for number, (second, n, pane) in enumerate(
        [(5, 9, "early"), (5, 9, "on_time"), (10, 1, "early"), (5, 2, "late"), (10, 8, "on_time"),
         (15, 2, "early"), (10, 2, "late"), (15, 1, "on_time"), (10, 9, "late")], start=1
    ):  # fmt: skip
        writer.write(f"i{number}", number, batch(sink, [("/", second, n)], pane=pa.array([pane])))
    writer.close()
    assert news(receiver) == [("/", "firing", at(5)), ("/", "resolved", at(5)),
                              ("/", "firing", at(10)), ("/", "resolved", at(10))]  # fmt: skip


def test_a_key_whose_windows_stay_away_is_resolved(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)

    def spans(*seconds: int) -> dict[str, pa.Array]:
        kind = pa.timestamp("us", "UTC")
        return {"window_start": pa.array([(s - 5) * SECOND for s in seconds], kind),
                "window_end": pa.array([s * SECOND for s in seconds], kind)}  # fmt: skip

    for number, (page, second, n) in enumerate(
        [("/cart", 5, 9), ("/", 10, 1), ("/", 15, 1), ("/", 20, 1)], start=1
    ):
        told = batch(sink, [(page, second, n)], **spans(second))
        writer.write(f"i{number}", number, told)
    writer.close()
    assert news(receiver) == [("/cart", "firing", at(5)), ("/cart", "resolved", at(15))]


def test_a_table_says_what_is_true_until_it_changes(receiver: Receiver) -> None:
    sink = alert(receiver, for_="10 seconds")
    told = played(receiver, sink, [("/", 1, 9), ("/cart", 1, 9)], [("/cart", 8, 1)],
                  [("/pay", 12, 1)], level=True)  # fmt: skip
    assert told == [("/", "firing", at(11))]


def test_time_goes_on_where_no_row_comes(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is nothing to do: a run that is only slow lets no time pass."""
    monkeypatch.setattr(notice_writer, "_QUIET", 0.1)
    sink = alert(receiver, absent="1 second")
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    until(receiver.taken)
    time.sleep(1.5)
    writer.close()
    assert news(receiver) == [("/", "firing", at(1))]
    writer = running(sink, epoch=2, calm=3600.0)
    until(lambda: len(receiver.taken()) == 2)
    writer.close()
    assert news(receiver)[1:] == [("/", "resolved", at(2))]


def test_rows_without_a_time_are_of_now(receiver: Receiver) -> None:
    sink = alert(receiver, by=[])
    table = pa.table({"page": ["/"], "n": [9]})
    writer = running(sink)
    writer.write("i1", 1, [Staged("fails", "result", sink, ("page",), 1, lambda: iter([table]))])
    writer.close()
    [post] = receiver.taken()
    assert post.data["key"] == {}
    assert json.loads(post.body)["timestamp"][:10] == time.strftime("%Y-%m-%d", time.gmtime())


def test_nulls_raise_nothing_and_are_keys_like_any_other(receiver: Receiver) -> None:
    sink = alert(receiver)
    table = pa.table({"page": pa.array([None, "/"]), "n": pa.array([9, None], pa.int64()),
                      "_time": [SECOND, SECOND]})  # fmt: skip
    writer = running(sink)
    writer.write("i1", 1, [Staged("fails", "result", sink, ("page",), 2, lambda: iter([table]))])
    writer.close()
    assert [post.data["key"] for post in receiver.taken()] == [{"page": None}]


@pytest.mark.parametrize("seed", range(12))
def test_the_same_rows_tell_the_same_under_any_cut_and_restart(
    seed: int, receiver: Receiver
) -> None:
    chance = random.Random(seed)
    rows = drawn(chance)
    rule = {"for_": chance.choice([0, 0, 3, 7]), "hold": chance.choice([0, 5, 20])}
    level, clears = chance.random() < 0.5, chance.choice([None, "n < 3"])
    absent = chance.choice([None, 4, 11])
    sink = alert(receiver, clears=clears, absent=None if absent is None else f"{absent} seconds",
                 **{name: f"{value} seconds" for name, value in rule.items()})  # fmt: skip
    writer, number = running(sink), 0
    while rows_left := rows[number:]:
        size = chance.choice([1, 2, 3, 10, len(rows)])
        part = whole_seconds(rows_left, size)
        chance.shuffle(part)
        number += len(part)
        writer.write(f"i{number}", number, batch(sink, part, level=level))
        if chance.random() < 0.3:
            writer.close()
            writer = running(sink, epoch=number + 2)
    writer.close()
    wanted = oracle.told(
        [oracle.Row(page, second, n > 5, n < 3 if clears else n <= 5, absent)
         for page, second, n in rows], level=level, **rule,
    )  # fmt: skip
    told = [(p.data["key"]["page"], p.data["state"], json.loads(p.body)["timestamp"][11:19],
             p.data["since"][11:19]) for p in receiver.taken()]  # fmt: skip
    assert sorted(told) == sorted((n.key, n.kind, at(n.at), at(n.begun)) for n in wanted)
    assert len({post.id for post in receiver.posts}) == len(told)


def drawn(chance: random.Random) -> list[Observed]:
    """Rows in order of time, each page at most once a second."""
    rows = []
    for second in range(1, chance.randrange(10, 60)):
        for page in "abc":
            if chance.random() < 0.6:
                rows.append((page, second, chance.choice([1, 4, 9, 9])))
    return rows


def whole_seconds(rows: list[Observed], size: int) -> list[Observed]:
    """So many rows, and those of the last second that are missing."""
    last = rows[min(size, len(rows)) - 1][1]
    return [row for row in rows if row[1] <= last]
