"""Sessions of many keys and of many rows: work goes by arrays, and follows what is touched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows import trigger
from millstream.operators.windows.sessions import kernel as session_kernel
from millstream.operators.windows.sessions.kernel import SessionKernel
from millstream.operators.windows.sessions.spec import Session

if TYPE_CHECKING:
    import pytest

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.float64())])
ANSWERS: dict[str, aggregates.Aggregate] = {"n": aggregates.count(), "total": aggregates.sum("v")}
GAP = 1000


def made(**options: bool) -> SessionKernel:
    return SessionKernel(Session(GAP), ["k"], ANSWERS, COLUMNS, **options)  # type: ignore[arg-type]


def rows(count: int, keys: int, *, at: int = 0) -> pa.Table:
    chosen = np.random.default_rng(7).permutation(np.arange(count, dtype=np.int64) % keys)
    times = at + np.arange(count, dtype=np.int64) % GAP
    return pa.table({"k": chosen, "v": np.ones(count), "_time": times})


def one_each(keys: int, *, at: int) -> pa.Table:
    times = np.full(keys, at, np.int64)
    return pa.table({"k": np.arange(keys), "v": np.ones(keys), "_time": times})


def three_batches(kernel: SessionKernel, keys: int) -> int:
    """Calls for batches that open sessions, add to them, and close them."""
    first, second = rows(2 * keys, keys), rows(2 * keys, keys, at=GAP)
    with Driver(kernel, ranges=2) as driver:

        def work() -> None:
            driver.step(first, before=MIN_TIME, after=0)
            driver.step(second, before=0, after=GAP)
            left = driver.step(first.slice(0, 0), before=GAP, after=4 * GAP)
            assert sum(table.num_rows for table in left.tables) == keys

        return calls(work)


def test_the_number_of_calls_does_not_grow_with_the_number_of_keys() -> None:
    early = trigger.trigger(early=trigger.every("1 second"))
    for kernel in (
        made(),
        made(retractable=True),
        SessionKernel(Session(GAP), ["k"], ANSWERS, COLUMNS, trigger=early),
    ):
        three_batches(kernel, 10)
        assert three_batches(kernel, 100_000) < 2 * three_batches(kernel, 1_000)


def test_a_million_keys_of_one_row_and_one_key_of_a_million_rows_finish_quickly() -> None:
    started = time.process_time()
    for keys in (1_000_000, 1):
        with Driver(made()) as driver:
            driver.step(rows(1_000_000, keys), before=MIN_TIME, after=0)
            left = driver.step(rows(0, 1), before=0, after=END_OF_TIME)
        counts = pa.concat_tables(left.tables)["n"].to_numpy()
        assert len(counts) == keys
        assert set(counts.tolist()) == {1_000_000 // keys}
    assert time.process_time() - started < 60


def test_a_batch_writes_what_it_touches_however_many_sessions_are_open() -> None:
    written = []
    for keys in (1_000, 50_000):
        with Driver(made()) as driver:
            driver.step(one_each(keys, at=0), before=MIN_TIME, after=0)
            before = sum(f.stat().st_size for f in driver.folder.rglob("*.arrow"))
            left = driver.step(one_each(100, at=GAP), before=0, after=GAP)
            after = sum(f.stat().st_size for f in driver.folder.rglob("*.arrow"))
            written.append((left.gained, after - before))
    assert written[0] == written[1]
    assert written[0][0] == 100


def test_a_growing_session_is_one_row_and_its_timer_is_set_once_per_gap() -> None:
    with Driver(made(), merge_every=1) as driver:
        gained = []
        for batch in range(50):
            at = batch * GAP // 10
            left = driver.step(rows(5, 1, at=at), before=at - 1, after=at)
            gained.append(left.gained)
        kept = {name: sum(s.rows for run in manifest.runs for s in run.segments)
                for name, manifest in driver.manifests.items()}  # fmt: skip
    assert kept == {"timers": 1, "sessions": 1}
    assert sum(gained) <= 50 + 50 // 10 + 1


def test_results_are_emitted_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_kernel, "CHUNK_BYTES", 20_000)
    with Driver(made()) as driver:
        driver.step(rows(2_000, 2_000), before=MIN_TIME, after=0)
        left = driver.step(rows(2_000, 2_000, at=1), before=0, after=END_OF_TIME)

    assert len(left.tables) > 10
    assert max(table.nbytes for table in left.tables) <= 20_000
    assert {r["n"] for r in left.rows} == {2}
    assert len(left.rows) == 2_000
