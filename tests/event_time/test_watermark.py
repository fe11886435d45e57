"""Watermarks and idleness, from DESIGN §3 alone: plain cases, then a model over random lives."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.event_time.watermark import Idleness, IdleTracker, advance, before

ACTIVE = Idleness()


def test_the_slowest_partition_holds_back_the_watermark() -> None:
    assert advance(MIN_TIME, {0: 20, 1: 15}, [0, 1], delay=5, idleness=ACTIVE) == 10


def test_a_partition_without_rows_holds_it_at_the_beginning() -> None:
    assert advance(MIN_TIME, {0: 20}, [0, 1], delay=5, idleness=ACTIVE) == MIN_TIME


def test_a_partition_that_appears_later_holds_it_where_it_is() -> None:
    assert advance(15, {0: 90}, [0, 1], delay=5, idleness=ACTIVE) == 15


def test_an_idle_partition_is_left_out() -> None:
    assert (
        advance(MIN_TIME, {0: 20, 1: 15}, [0, 1], delay=5, idleness=Idleness(frozenset({1}))) == 15
    )
    assert advance(MIN_TIME, {0: 20}, [0, 1], delay=5, idleness=Idleness(frozenset({1}))) == 15


def test_an_idle_partition_that_resumes_far_behind_does_not_move_it_back() -> None:
    assert advance(100, {0: 200, 1: 15}, [0, 1], delay=5, idleness=ACTIVE) == 100


def test_when_all_are_idle_the_drift_counts() -> None:
    idleness = Idleness(frozenset({0, 1}), drift=77)
    assert advance(50, {0: 60, 1: 55}, [0, 1], delay=5, idleness=idleness) == 77
    assert advance(90, {0: 60, 1: 55}, [0, 1], delay=5, idleness=idleness) == 90


def test_without_a_partition_nothing_moves() -> None:
    assert advance(MIN_TIME, {}, [], delay=5, idleness=ACTIVE) == MIN_TIME
    assert advance(7, {}, [], delay=5, idleness=ACTIVE) == 7


def test_a_declared_watermark_moves_it_forward_but_never_back() -> None:
    assert advance(10, {0: 5}, [0], delay=0, idleness=ACTIVE, declared=40) == 40
    assert advance(60, {0: 5}, [0], delay=0, idleness=ACTIVE, declared=40) == 60
    assert advance(10, {0: 5}, [0], delay=0, idleness=ACTIVE, declared=END_OF_TIME) == END_OF_TIME


def test_the_delay_falls_off_neither_end_of_time() -> None:
    assert before(MIN_TIME + 3, 5) == MIN_TIME
    assert before(END_OF_TIME, 5) == END_OF_TIME


@dataclass
class Life:
    """One source through one run: rows come, batches read them, the clock goes on."""

    idle: int | None
    partitions: int = 1
    delay: int = 0
    clock: int = 0
    watermark: int = MIN_TIME
    times: dict[int, int] = field(default_factory=dict)
    idleness: Idleness = ACTIVE

    def __post_init__(self) -> None:
        self.tracker = IdleTracker(self.idle)

    def batch(
        self, at: int, rows: dict[int, int] | None = None, unread: tuple[int, ...] = ()
    ) -> int:
        """A batch at this clock that reads `rows` (partition to time); returns W after it."""
        self.clock, rows = at, rows or {}
        waiting = {p: p in rows or p in unread for p in range(self.partitions)}
        self.idleness = self.tracker.observe(
            at, self.watermark, waiting, times=self.times, delay=self.delay
        )
        for partition, time in rows.items():
            self.times[partition] = max(time, self.times.get(partition, time))
        self.watermark = advance(
            self.watermark,
            self.times,
            range(self.partitions),
            delay=self.delay,
            idleness=self.idleness,
        )
        if rows:
            self.tracker.restart_drift(at, self.watermark)
        return self.watermark

    def restart(self) -> None:
        self.tracker = IdleTracker(self.idle)


def test_a_partition_is_idle_when_it_was_found_read_to_its_end_for_that_long() -> None:
    life = Life(idle=30, partitions=2)
    life.batch(0, {0: 100, 1: 50})

    assert life.batch(29, {0: 110}) == 50
    assert life.idleness.idle == set()
    assert life.batch(30, {0: 120}) == 120
    assert life.idleness.idle == {1}


def test_a_partition_without_rows_becomes_idle_too() -> None:
    life = Life(idle=30, partitions=2)
    assert life.batch(0, {0: 100}) == MIN_TIME

    assert life.batch(31, {0: 110}) == 110


def test_unread_rows_never_make_it_idle() -> None:
    life = Life(idle=30, partitions=2)
    life.batch(0, {0: 100, 1: 50})

    for clock in (20, 40, 60):
        assert life.batch(clock, {0: 100 + clock}, unread=(1,)) == 50
    assert life.batch(89, {0: 500}) == 50
    assert life.batch(90, {0: 500}) == 500


def test_downtime_never_makes_it_idle() -> None:
    life = Life(idle=30, partitions=2)
    life.batch(0, {0: 100, 1: 50})
    life.restart()

    assert life.batch(1000, {0: 110}) == 50
    assert life.batch(1029, {0: 110}) == 50
    assert life.batch(1030, {0: 110}) == 110


def test_it_is_active_again_with_its_first_row() -> None:
    life = Life(idle=30, partitions=2)
    life.batch(0, {0: 100, 1: 50})
    life.batch(40, {0: 110})

    life.batch(41, {0: 300, 1: 60})
    assert life.idleness.idle == set()
    assert life.watermark == 110
    assert life.batch(42, {1: 200}) == 200


def test_when_all_are_idle_it_advances_one_second_per_second_since_the_last_row() -> None:
    life = Life(idle=30, delay=5)
    life.batch(0, {0: 100})

    assert [life.batch(c) for c in (10, 29, 30, 31, 500)] == [95, 95, 125, 126, 595]


def test_the_clock_before_the_last_row_does_not_count() -> None:
    life = Life(idle=30)
    life.batch(1_000, {0: 100})

    assert life.batch(1_030) == 130


def test_downtime_does_not_advance_it_either() -> None:
    life = Life(idle=30)
    life.batch(0, {0: 100})
    life.batch(60)
    assert life.watermark == 160
    life.restart()

    assert [life.batch(c) for c in (900, 929, 930, 940)] == [160, 160, 190, 200]


def test_it_continues_from_the_partitions_that_became_idle_last() -> None:
    """At 30 partition 1 is left out and W is 100; at 50 the last row is 30 old."""
    often, seldom = Life(idle=30, partitions=2), Life(idle=30, partitions=2)
    for life in (often, seldom):
        life.batch(0, {0: 90, 1: 50})
        life.batch(20, {0: 100})
    for clock in range(21, 50):
        often.batch(clock)

    assert often.watermark == 100
    assert often.batch(50) == 130
    assert seldom.batch(50) == 130


def test_an_empty_partition_does_not_keep_an_idle_source_at_the_beginning() -> None:
    life = Life(idle=30, partitions=2)
    life.batch(0, {0: 100})

    assert life.batch(30) == 130


def test_nothing_moves_while_no_row_was_ever_seen() -> None:
    life = Life(idle=30, partitions=2)

    assert [life.batch(c) for c in (0, 30, 90)] == [MIN_TIME] * 3
    assert life.idleness.idle == {0, 1}


def test_a_new_partition_stops_the_drift_until_it_is_idle_itself() -> None:
    life = Life(idle=30)
    life.batch(0, {0: 100})
    life.batch(50)
    life.partitions = 2

    assert [life.batch(c) for c in (60, 89, 90, 100)] == [150, 150, 180, 190]


def test_the_drift_continues_from_a_declared_watermark() -> None:
    life = Life(idle=30)
    life.batch(0, {0: 100})
    life.batch(40)
    life.watermark = 1_000

    assert [life.batch(c) for c in (50, 60)] == [1_000, 1_010]


def test_idle_none_turns_both_rules_off() -> None:
    life = Life(idle=None, partitions=2)
    life.batch(0, {0: 100, 1: 50})

    assert life.batch(10_000, {0: 500}) == 50
    assert life.batch(99_999) == 50
    assert life.idleness == Idleness()


def test_a_restart_resets_the_idle_time() -> None:
    life = Life(idle=30)
    life.batch(0, {0: 100})
    life.tracker.restart(1_000_000)

    assert [life.batch(1_000_000 + c) for c in (0, 29, 30)] == [100, 100, 130]


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.dictionaries(st.integers(0, 2), st.integers(0, 200), max_size=3),
        st.booleans(),
    ),
    max_size=25,
)


@given(EVENTS, st.sampled_from([None, 10, 30]), st.integers(0, 20))
def test_whatever_happens_it_never_goes_back_and_never_passes_what_it_may(
    events: list[tuple[int, dict[int, int], bool]], idle: int | None, delay: int
) -> None:
    """The model keeps every partition's last unread look and nothing else."""
    life = Life(idle=idle, partitions=3, delay=delay)
    clock, idle_since = 0, dict.fromkeys(range(3), 0)
    started = False
    for passed, rows, crash in events:
        clock += passed
        if crash:
            life.restart()
            started = False
        earlier = life.watermark
        life.batch(clock, rows)
        if not started:
            idle_since, started = dict.fromkeys(range(3), clock), True
        idle_since |= dict.fromkeys(rows, clock)
        idle_now = {p for p, at in idle_since.items() if idle is not None and clock - at >= idle}
        assert life.idleness.idle == idle_now
        assert life.watermark >= earlier
        awake = set(range(3)) - idle_now
        if awake:
            least = min(life.times.get(p, MIN_TIME) for p in awake)
            expected = max(earlier, MIN_TIME if least == MIN_TIME else least - delay)
            assert life.watermark == expected
        elif life.times:
            since = clock - max(idle_since.values())
            assert life.watermark <= max(earlier, max(life.times.values()) - delay) + since


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=10),
    st.lists(st.integers(1, 20), max_size=12),
    st.integers(0, 20),
)
def test_the_frequency_of_observations_makes_no_difference(
    times: list[int], pauses: list[int], delay: int
) -> None:
    lives = [Life(idle=30, partitions=2, delay=delay) for _ in range(2)]
    for life in lives:
        for place, time in enumerate(times):
            life.batch(place, {place % 2: time})
    end = len(times) + 200
    clock = len(times)
    for pause in pauses:
        clock += pause
        if clock < end:
            lives[0].batch(clock)

    assert lives[0].batch(end) == lives[1].batch(end)
