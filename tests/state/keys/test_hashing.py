"""The canonical hash against a scalar xxHash64 written here, and the canon it stands on."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput, InvalidSpec
from millstream.state.keys.hashing import buckets_of, hash_keys, hash_range, spark_hash
from millstream.state.keys.xxhash import hash_spans

P1, P2, P3, P4, P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
ALL = 2**64 - 1


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & ALL


def one_round(state: int, word: int) -> int:
    return rotate((state + word * P2) & ALL, 31) * P1 & ALL


def xxhash64(data: bytes, seed: int) -> int:
    """The published algorithm, one value at a time."""
    at, state = 0, (seed + P5) & ALL
    if len(data) >= 32:
        lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while at + 32 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
                lanes[lane] = one_round(lanes[lane] & ALL, word)
            at += 32
        state = sum(rotate(v, r) for v, r in zip(lanes, (1, 7, 12, 18), strict=True)) & ALL
        for lane in lanes:
            state = ((state ^ one_round(0, lane)) * P1 + P4) & ALL
    state = (state + len(data)) & ALL
    while at + 8 <= len(data):
        state ^= one_round(0, int.from_bytes(data[at : at + 8], "little"))
        state, at = (rotate(state, 27) * P1 + P4) & ALL, at + 8
    if at + 4 <= len(data):
        state ^= int.from_bytes(data[at : at + 4], "little") * P1 & ALL
        state, at = (rotate(state, 23) * P2 + P3) & ALL, at + 4
    for byte in data[at:]:
        state = rotate(state ^ (byte * P5 & ALL), 11) * P1 & ALL
    state = (state ^ state >> 33) * P2 & ALL
    state = (state ^ state >> 29) * P3 & ALL
    return state ^ state >> 32


def word(value: int) -> bytes:
    return (value & ALL).to_bytes(8, "little")


def hashed(*columns: pa.Array) -> list[int]:
    return [int(value) for value in hash_keys(columns, len(columns[0]))]


def test_the_scalar_function_gives_the_published_values() -> None:
    assert xxhash64(b"", 0) == 0xEF46DB3751D8E999
    assert xxhash64(b"a", 0) == 0xD24EC4F1A98C6E5B
    assert xxhash64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


@settings(max_examples=60)
@given(rows=st.lists(st.binary(max_size=140), min_size=1), seed=st.integers(0, ALL))
def test_bytes_of_every_length_hash_as_one_by_one(rows: list[bytes], seed: int) -> None:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    data = np.frombuffer(b"".join(rows) or b"\0", np.uint8)
    seeds = np.full(len(rows), seed, dtype=np.uint64)
    got = hash_spans(data, np.cumsum(lengths) - lengths, lengths, seeds)
    assert [int(value) for value in got] == [xxhash64(row, seed) for row in rows]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_an_integer_is_hashed_after_its_null_mark(values: list[int | None]) -> None:
    expected = [
        xxhash64(word(1), 42) if value is None else xxhash64(word(value), xxhash64(word(0), 42))
        for value in values
    ]
    assert hashed(pa.array(values, pa.int64())) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([7, -1], pa.int8()), pa.array([7, -1], pa.int64())),
        (pa.array([7, 255], pa.uint8()), pa.array([7, 255], pa.int32())),
        (pa.array([True, False]), pa.array([1, 0], pa.int64())),
        (pa.array([0.0, float("nan")]), pa.array([-0.0, float("nan")], pa.float32())),
        (pa.array([1.5], pa.float32()), pa.array([1.5], pa.float64())),
        (pa.array(["é", ""]), pa.array(["é", ""], pa.large_string())),
        (pa.array(["é", ""]), pa.array(["é", ""], pa.string_view())),
        (pa.array(["a", "b", "a"]), pa.array(["a", "b", "a"]).dictionary_encode()),
        (pa.array([b"ab"]), pa.array([b"ab"], pa.binary(2))),
        (pa.array([5000], pa.timestamp("us", "UTC")), pa.array([5], pa.timestamp("ms"))),
        (pa.array([date(2026, 1, 2)]), pa.array([date(2026, 1, 2)], pa.date64())),
        (pa.array([[1, 2]]), pa.array([[1, 2]], pa.list_(pa.int64(), 2))),
        (pa.array([Decimal("1.50")]), pa.array([Decimal("1.50")], pa.decimal128(18, 2))),
    ],
    ids=str,
)
def test_equal_values_hash_equally_however_they_are_stored(one: pa.Array, other: pa.Array) -> None:
    assert hashed(one) == hashed(other)


def test_every_nan_and_zero_is_the_same_key() -> None:
    odd_nan = np.array([0x7FF8000000000001, -1], dtype=np.int64).view(np.float64)
    same = hashed(pa.array([float("nan"), *odd_nan]))
    assert len(set(same)) == 1


def test_the_position_of_a_null_matters() -> None:
    five, none = pa.array([5]), pa.array([None], pa.int64())
    texts = [hashed(five, none), hashed(none, five), hashed(none, none), hashed(five, five)]
    assert len({tuple(text) for text in texts}) == 4
    lists = pa.array([[None, 5], [5, None], [5], [], None, [None]])
    assert len(set(hashed(lists))) == 6


def test_lists_do_not_run_into_each_other() -> None:
    left = hashed(pa.array([["a", "b"]]), pa.array([["c"]]))
    assert left != hashed(pa.array([["a"]]), pa.array([["b", "c"]]))


def test_a_slice_hashes_as_its_rows_do() -> None:
    columns = [
        pa.array([1, None, 3, 4]),
        pa.array(["a", "bb", None, "dddd"]),
        pa.array([[1.5], [], None, [2.5, None]]),
        pa.array([{"x": True}, None, {"x": None}, {"x": False}]),
        pa.array([Decimal(1), None, Decimal(3), Decimal(4)], pa.decimal128(30, 0)),
    ]
    assert hashed(*(column[1:3] for column in columns)) == hashed(*columns)[1:3]
    chunked = [pa.chunked_array([column[:1], column[1:]]) for column in columns]
    assert [int(value) for value in hash_keys(chunked, 4)] == hashed(*columns)


def test_seventy_columns_have_marks_for_all() -> None:
    columns = [pa.array([1])] * 69
    none = pa.array([None], pa.int64())
    seen = {hashed(*columns[:place], none, *columns[place:])[0] for place in (0, 1, 62, 63, 64, 69)}
    assert len(seen) == 6


def test_no_columns_and_no_rows_are_fine() -> None:
    assert len(set(hash_keys([], 3).tolist())) == 1
    assert len(hash_keys([pa.array([], pa.string())], 0)) == 0


def test_a_bucket_is_the_top_bits_and_a_range_of_hashes() -> None:
    hashes = np.array([0, 2**56 - 1, 2**56, 2**64 - 1], dtype=np.uint64)
    assert buckets_of(hashes, 256).tolist() == [0, 0, 1, 255]
    assert buckets_of(hashes, 1).tolist() == [0, 0, 0, 0]
    assert hash_range((1, 3), 256) == (2**56, 3 * 2**56 - 1)
    assert hash_range((0, 256), 256) == (0, 2**64 - 1)


def test_what_cannot_be_a_key_is_refused_in_one_sentence() -> None:
    map_type = pa.map_(pa.string(), pa.int64())
    with pytest.raises(InvalidSpec, match=r"a key needs a type with an order.*; got map<.*; group"):
        hash_keys([pa.array([[("a", 1)]], map_type)], 1)
    with pytest.raises(InvalidSpec, match="got uint64"):
        spark_hash([("a", pa.uint64())])
    with pytest.raises(InvalidInput, match="power of two; got 3"):
        buckets_of(np.zeros(1, dtype=np.uint64), 3)
    with pytest.raises(InvalidInput, match="needs 2 rows in every column; got 1"):
        hash_keys([pa.array([1])], 2)
    with pytest.raises(InvalidInput, match=r"0 <= low < high <= 8; got \[3, 3\)"):
        hash_range((3, 3), 8)
