"""The seeded generator of the benchmarks: without a broker."""

from __future__ import annotations

import hashlib
import json
from itertools import chain

import pytest
from benchmarks.cells import drained_of
from benchmarks.nexmark import BLOCK, RUN, SHARES, START_MS, Load, blocks, run_of

KINDS = tuple(SHARES)


def digest(load: Load, kind: str) -> str:
    return hashlib.sha256(b"\n".join(chain.from_iterable(blocks(load, kind)))).hexdigest()


def times(load: Load, kind: str) -> list[int]:
    return [json.loads(value)["ts"] for value in chain.from_iterable(blocks(load, kind))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes(kind: str) -> None:
    assert digest(Load(20_000, seed=3), kind) == digest(Load(20_000, seed=3), kind)


def test_the_bytes_are_the_same_on_every_machine() -> None:
    assert digest(Load(5_000), "bids")[:16] == "01ce5dc4c4c8c004"


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_other_bytes(kind: str) -> None:
    assert digest(Load(20_000, seed=3), kind) != digest(Load(20_000, seed=4), kind)


def test_persons_auctions_and_bids_are_one_three_and_forty_six_of_fifty() -> None:
    counts = {kind: sum(map(len, blocks(Load(50_000), kind))) for kind in KINDS}

    assert counts == {"persons": 1_000, "auctions": 3_000, "bids": 46_000}


@pytest.mark.parametrize("kind", KINDS)
def test_event_times_ascend_and_fill_the_span_of_the_density(kind: str) -> None:
    found = times(Load(50_000, density=1_000), kind)

    assert found == sorted(found)
    assert found[0] == START_MS
    assert START_MS + 49_900 <= found[-1] < START_MS + 50_000


def test_event_times_ascend_from_one_block_to_the_next() -> None:
    found = times(Load(BLOCK * 50 // 46 + 1_000, density=100_000), "bids")

    assert len(found) > BLOCK
    assert found == sorted(found)


def test_a_bid_has_its_six_fields_and_a_key_within_the_keys() -> None:
    bids = [
        json.loads(value) for value in chain.from_iterable(blocks(Load(50_000, keys=10), "bids"))
    ]

    assert {tuple(bid) for bid in bids} == {("auction", "bidder", "price", "channel", "url", "ts")}
    assert {bid["auction"] for bid in bids} == set(range(10))


@pytest.mark.parametrize("count", [40, 2_000, 6_000, 60_000])
def test_a_small_topic_has_records_of_every_time_in_each_partition(count: int) -> None:
    size = run_of(count, partitions=4)

    last = [max(n for n in range(count) if n // size % 4 == place) for place in range(4)]

    assert min(last) >= count * 9 // 10 - 1


def test_a_large_topic_has_long_runs_and_the_smallest_has_runs_of_one() -> None:
    assert run_of(4_000_000, partitions=4) == RUN
    assert run_of(3, partitions=4) == 1


def test_a_row_counts_the_events_of_the_kinds_it_reads() -> None:
    assert drained_of(300_000, ["bids"]) == 276_000
    assert drained_of(300_000, ("persons", "auctions")) == 24_000
