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

from millstream.sinks.alerts import writer as alert_writer
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sinks.receiving import Receiver

pytestmark = pytest.mark.usefixtures("home_apart")


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


def test_an_alert_raised_again_at_the_same_time_is_another_episode(receiver: Receiver) -> None:
    """A table may say otherwise, and otherwise again, while its time stands still."""
    told = played(receiver, alert(receiver), [("/", 1, 9)], [("/", 1, 1)], [("/", 1, 9)],
                  [("/", 2, 1)], level=True)  # fmt: skip
    assert told == [("/", "firing", at(1)), ("/", "resolved", at(1)),
                    ("/", "firing", at(1)), ("/", "resolved", at(2))]  # fmt: skip
    assert len({post.data["episode"] for post in receiver.taken()}) == 2


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
    monkeypatch.setattr(alert_writer, "_QUIET", 0.1)
    sink = alert(receiver, absent="1 second")
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    until(receiver.taken)
    time.sleep(1.5)
    writer.close()
    assert news(receiver) == [("/", "firing", at(1))]
    writer = running(sink, epoch=2, idle=3600.0)
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
    """A batch may end within a second, so that rows of one page and time come in several."""
    chance, seen = random.Random(seed), list[oracle.Row]()
    rows, sizes = drawn(chance), chance.choice([[1, 1, 2], [1, 3, 10], [10, 100]])
    rule = {"for_": chance.choice([0, 0, 3, 7]), "hold": chance.choice([0, 0, 5, 20])}
    level, clears = chance.random() < 0.5, chance.choice([None, "n < 3"])
    absent = chance.choice([None, 4, 11])
    sink = alert(receiver, clears=clears, absent=None if absent is None else f"{absent} seconds",
                 **{name: f"{value} seconds" for name, value in rule.items()})  # fmt: skip
    writer, number = running(sink), 0
    while rows_left := rows[number:]:
        part = rows_left[: chance.choice(sizes)]
        seen += at_once(part, lambda n: n < 3 if clears else n <= 5, absent)
        number += len(part)
        chance.shuffle(part)
        writer.write(f"i{number}", number, batch(sink, part, level=level))
        if chance.random() < 0.15:
            writer.close()
            writer = running(sink, epoch=number + 2)
    writer.close()
    in_micros = {name: value * SECOND for name, value in rule.items()}
    wanted = oracle.told(seen, level=level, **in_micros)
    told = [(p.data["key"]["page"], p.data["state"], json.loads(p.body)["timestamp"][11:19],
             p.data["since"][11:19]) for p in receiver.taken()]  # fmt: skip
    assert sorted(told) == sorted((n.key, n.kind, at(n.at // SECOND), at(n.begun // SECOND))
                                  for n in wanted)  # fmt: skip
    assert len({post.id for post in receiver.posts}) == len(told)


def drawn(chance: random.Random) -> list[Observed]:
    """Rows in order of time, of a page none, one or several in a second."""
    rows = []
    for second in range(1, chance.randrange(10, 40)):
        for page in "abc":
            for _ in range(chance.choice([0, 0, 1, 1, 1, 4])):
                rows.append((page, second, chance.choice([1, 4, 9, 9])))
    return rows


def at_once(
    part: list[Observed], clears: Callable[[int], bool], absent: int | None
) -> list[oracle.Row]:
    """A batch as it is to be understood: the rows of a page and a second count as one, which
    raises if one of them does and clears if all of them do."""
    moments: dict[tuple[str, int], list[int]] = {}
    for page, second, n in part:
        moments.setdefault((page, second), []).append(n)
    speaks = None if absent is None else absent * SECOND
    return [oracle.Row(page, second * SECOND, max(ns) > 5, all(map(clears, ns)), speaks)
            for (page, second), ns in moments.items()]  # fmt: skip
