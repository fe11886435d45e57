"""`Alert`: episodes that do not depend on how rows are cut into batches."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.oracles import alerts_oracle as oracle
from tests.sinks.alerting import (
    SECOND,
    Observed,
    alert,
    at,
    batch,
    notifications,
    opened_writer,
    run_batches,
    until,
)

from millstream.sinks.alerts import writer as alert_writer
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sinks.receiving import Receiver

pytestmark = pytest.mark.usefixtures("home_apart")


def test_an_alert_fires_and_is_resolved_once_per_key(receiver: Receiver) -> None:
    sent = run_batches(
        receiver, alert(receiver),
        [("/", 1, 3), ("/cart", 1, 9)], [("/cart", 2, 9)], [("/cart", 3, 8), ("/", 3, 9)],
        [("/cart", 4, 1), ("/", 4, 9)],
    )  # fmt: skip
    assert sent == [
        ("/cart", "firing", at(1)), ("/", "firing", at(3)), ("/cart", "resolved", at(4)),
    ]  # fmt: skip


def test_an_alert_fires_only_after_the_condition_held_for_long_enough(receiver: Receiver) -> None:
    sink = alert(receiver, for_="3 seconds")
    sent = run_batches(receiver, sink, [("/", 1, 9), ("/", 2, 9)], [("/", 3, 1), ("/", 4, 9)],
                  [("/", 6, 9)], [("/", 7, 9)], [("/", 9, 9), ("/", 10, 1)])  # fmt: skip
    assert sent == [("/", "firing", at(7)), ("/", "resolved", at(10))]


def test_a_flapping_alert_notifies_again_only_after_the_hold(
    receiver: Receiver,
) -> None:
    flapping = [("/", second, 9 if second % 2 else 1) for second in range(1, 30)]
    sink = alert(receiver, hold="30 seconds")
    sent = run_batches(receiver, sink, flapping, [("/", second, 9) for second in range(30, 40)])
    assert sent == [("/", "firing", at(1)), ("/", "resolved", at(2)), ("/", "firing", at(32))]


def test_clears_keeps_an_alert_firing_until_its_own_condition_is_true(receiver: Receiver) -> None:
    sink = alert(receiver, clears="n < 2")
    sent = run_batches(receiver, sink, [("/", 1, 9)], [("/", 2, 4)], [("/", 3, 3)], [("/", 4, 1)])
    assert sent == [("/", "firing", at(1)), ("/", "resolved", at(4))]


def test_a_retracted_row_resolves_the_alert(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/cart", 1, 9)]))
    signs = pa.array([-1, -1, 1], pa.int8())
    rows = [("/", 1, 9), ("/cart", 1, 9), ("/cart", 1, 8)]
    writer.write("i2", 2, batch(sink, rows, _sign=signs))
    writer.close()
    assert notifications(receiver) == [("/", "firing", at(1)), ("/cart", "firing", at(1)),
                              ("/", "resolved", at(1))]  # fmt: skip


def test_an_alert_raised_again_at_the_same_time_is_another_episode(receiver: Receiver) -> None:
    """A table may change several times at the same event time."""
    sent = run_batches(receiver, alert(receiver), [("/", 1, 9)], [("/", 1, 1)], [("/", 1, 9)],
                  [("/", 2, 1)], level=True)  # fmt: skip
    assert sent == [("/", "firing", at(1)), ("/", "resolved", at(1)),
                    ("/", "firing", at(1)), ("/", "resolved", at(2))]  # fmt: skip
    assert len({post.data["episode"] for post in receiver.taken()}) == 2


def test_the_order_of_rows_with_the_same_time_does_not_matter(receiver: Receiver) -> None:
    sink = alert(receiver, by=[])
    sent = run_batches(receiver, sink, [("/", 1, 9), ("/cart", 1, 1)],
                       [("/cart", 2, 1), ("/", 2, 9)], [("/", 3, 2), ("/cart", 3, 1)])  # fmt: skip
    assert sent == [("", "firing", at(1)), ("", "resolved", at(3))]


def test_rows_retracted_in_the_same_batch_raise_nothing(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = opened_writer(sink)
    signs = pa.array([1, -1, 1], pa.int8())
    writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/", 1, 9), ("/", 1, 3)], _sign=signs))
    writer.write("i2", 2, batch(sink, [("/", 2, 9), ("/", 2, 9)], _sign=signs[:2]))
    writer.close()
    assert notifications(receiver) == []


def test_an_early_pane_raises_and_only_a_whole_window_or_its_correction_clears(
    receiver: Receiver,
) -> None:
    sink = alert(receiver)
    writer = opened_writer(sink)
    for number, (second, n, pane) in enumerate(
        [(5, 9, "early"), (5, 9, "on_time"), (10, 1, "early"), (5, 2, "late"), (10, 8, "on_time"),
         (15, 2, "early"), (10, 2, "late"), (15, 1, "on_time"), (10, 9, "late")], start=1
    ):  # fmt: skip
        writer.write(f"i{number}", number, batch(sink, [("/", second, n)], pane=pa.array([pane])))
    writer.close()
    assert notifications(receiver) == [("/", "firing", at(5)), ("/", "resolved", at(5)),
                              ("/", "firing", at(10)), ("/", "resolved", at(10))]  # fmt: skip


def test_a_key_without_further_windows_is_resolved(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = opened_writer(sink)

    def spans(*seconds: int) -> dict[str, pa.Array]:
        kind = pa.timestamp("us", "UTC")
        return {"window_start": pa.array([(s - 5) * SECOND for s in seconds], kind),
                "window_end": pa.array([s * SECOND for s in seconds], kind)}  # fmt: skip

    for number, (page, second, n) in enumerate(
        [("/cart", 5, 9), ("/", 10, 1), ("/", 15, 1), ("/", 20, 1)], start=1
    ):
        staged = batch(sink, [(page, second, n)], **spans(second))
        writer.write(f"i{number}", number, staged)
    writer.close()
    assert notifications(receiver) == [("/cart", "firing", at(5)), ("/cart", "resolved", at(15))]


def test_a_row_of_a_table_is_true_until_it_changes(receiver: Receiver) -> None:
    sink = alert(receiver, for_="10 seconds")
    sent = run_batches(receiver, sink, [("/", 1, 9), ("/cart", 1, 9)], [("/cart", 8, 1)],
                  [("/pay", 12, 1)], level=True)  # fmt: skip
    assert sent == [("/", "firing", at(11))]


def test_time_advances_while_the_run_is_idle(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is only slow does not advance time."""
    monkeypatch.setattr(alert_writer, "_IDLE_AFTER", 0.1)
    sink = alert(receiver, absent="1 second")
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    until(receiver.taken)
    time.sleep(1.5)
    writer.close()
    assert notifications(receiver) == [("/", "firing", at(1))]
    writer = opened_writer(sink, epoch=2, idle=3600.0)
    until(lambda: len(receiver.taken()) == 2)
    writer.close()
    assert notifications(receiver)[1:] == [("/", "resolved", at(2))]


def test_rows_without_a_time_get_the_current_time(receiver: Receiver) -> None:
    sink = alert(receiver, by=[])
    table = pa.table({"page": ["/"], "n": [9]})
    writer = opened_writer(sink)
    writer.write("i1", 1, [Staged("fails", "result", sink, ("page",), 1, lambda: iter([table]))])
    writer.close()
    [post] = receiver.taken()
    assert post.data["key"] == {}
    assert json.loads(post.body)["timestamp"][:10] == time.strftime("%Y-%m-%d", time.gmtime())


def test_nulls_raise_nothing_and_are_keys_like_any_other(receiver: Receiver) -> None:
    sink = alert(receiver)
    table = pa.table({"page": pa.array([None, "/"]), "n": pa.array([9, None], pa.int64()),
                      "_time": [SECOND, SECOND]})  # fmt: skip
    writer = opened_writer(sink)
    writer.write("i1", 1, [Staged("fails", "result", sink, ("page",), 2, lambda: iter([table]))])
    writer.close()
    assert [post.data["key"] for post in receiver.taken()] == [{"page": None}]


@pytest.mark.parametrize("seed", range(12))
def test_the_same_rows_send_the_same_notifications_under_any_batches_and_restarts(
    seed: int, receiver: Receiver
) -> None:
    """A batch may end within a second, so rows of one page and time may be in several batches."""
    chance, seen = random.Random(seed), list[oracle.Row]()
    rows, sizes = random_rows(chance), chance.choice([[1, 1, 2], [1, 3, 10], [10, 100]])
    rule = {"for_": chance.choice([0, 0, 3, 7]), "hold": chance.choice([0, 0, 5, 20])}
    level, clears = chance.random() < 0.5, chance.choice([None, "n < 3"])
    absent = chance.choice([None, 4, 11])
    sink = alert(receiver, clears=clears, absent=None if absent is None else f"{absent} seconds",
                 **{name: f"{value} seconds" for name, value in rule.items()})  # fmt: skip
    writer, number = opened_writer(sink), 0
    while rows_left := rows[number:]:
        part = rows_left[: chance.choice(sizes)]
        seen += combined(part, lambda n: n < 3 if clears else n <= 5, absent)
        number += len(part)
        chance.shuffle(part)
        writer.write(f"i{number}", number, batch(sink, part, level=level))
        if chance.random() < 0.15:
            writer.close()
            writer = opened_writer(sink, epoch=number + 2)
    writer.close()
    in_micros = {name: value * SECOND for name, value in rule.items()}
    expected = oracle.expected_notifications(seen, level=level, **in_micros)
    sent = [(p.data["key"]["page"], p.data["state"], json.loads(p.body)["timestamp"][11:19],
             p.data["since"][11:19]) for p in receiver.taken()]  # fmt: skip
    assert sorted(sent) == sorted((n.key, n.kind, at(n.at // SECOND), at(n.begun // SECOND))
                                  for n in expected)  # fmt: skip
    assert len({post.id for post in receiver.posts}) == len(sent)


def random_rows(chance: random.Random) -> list[Observed]:
    """Rows in order of time, of a page none, one or several in a second."""
    rows = []
    for second in range(1, chance.randrange(10, 40)):
        for page in "abc":
            for _ in range(chance.choice([0, 0, 1, 1, 1, 4])):
                rows.append((page, second, chance.choice([1, 4, 9, 9])))
    return rows


def combined(
    part: list[Observed], clears: Callable[[int], bool], absent: int | None
) -> list[oracle.Row]:
    """The rows of a batch with the rows of a page and a second combined: it raises if one of them
    does, and clears if all of them do."""
    moments: dict[tuple[str, int], list[int]] = {}
    for page, second, n in part:
        moments.setdefault((page, second), []).append(n)
    valid_for = None if absent is None else absent * SECOND
    return [oracle.Row(page, second * SECOND, max(ns) > 5, all(map(clears, ns)), valid_for)
            for (page, second), ns in moments.items()]  # fmt: skip
