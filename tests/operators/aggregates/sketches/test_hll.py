"""HyperLogLog: registers as said, and errors as stated, from no value to billions."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.operators.aggregates.sketches import hll


def sketch(hashes: np.ndarray, precision: int) -> np.ndarray:
    """The highest word of each register, by a dictionary."""
    highest: dict[int, int] = {}
    for word in hll.words(hashes, precision).tolist():
        highest[word >> 6] = max(highest.get(word >> 6, 0), word)
    return np.array(sorted(highest.values()), np.int64)


def simulated(count: int, precision: int, rng: np.random.Generator) -> np.ndarray:
    """The registers of `count` random hashes, as their distribution has them."""
    met = rng.multinomial(count, [2.0**-precision] * 2**precision)
    uniform = rng.random(2**precision)
    most = 64 - precision + 1
    with np.errstate(divide="ignore"):
        ranks = np.ceil(-np.log2(1.0 - uniform ** (1.0 / np.maximum(met, 1)))).astype(np.int64)
    ranks = np.clip(ranks, 1, most)
    there = np.flatnonzero(met)
    return np.asarray(there << 6 | ranks[there])


@given(st.integers(0, 2**64 - 1), st.integers(7, 16))
def test_a_word_is_the_top_bits_and_one_more_than_the_zeros_that_follow(
    hashed: int, precision: int
) -> None:
    bits = f"{hashed:064b}"
    rest = bits[precision:]
    rank = len(rest) - len(rest.lstrip("0")) + 1
    [word] = hll.words(np.array([hashed], np.uint64), precision).tolist()
    assert word == int(bits[:precision], 2) << 6 | rank


@pytest.mark.parametrize("zeros", [0, 1, 7, 31, 32, 47, 51, 52])
def test_every_number_of_zeros_is_counted(zeros: int) -> None:
    hashed = np.array([(1 << 52) - 1 >> zeros], np.uint64)
    assert hll.words(hashed, 12).tolist() == [zeros + 1]


@pytest.mark.parametrize(
    ("error", "precision"),
    [(0.1, 7), (0.05, 9), (0.02, 12), (0.0163, 12), (0.0162, 13), (0.005, 16)],
)
def test_the_precision_is_the_smallest_that_keeps_the_error(error: float, precision: int) -> None:
    assert hll.precision_for(error) == precision
    assert 1.04 / 2 ** (precision / 2) <= error


@pytest.mark.parametrize("precision", [7, 9, 12])
@pytest.mark.parametrize("count", [1, 2, 10, 100, 3_000, 20_000, 10**6, 10**9, 10**12])
def test_the_standard_error_is_as_stated_and_there_is_no_bias(precision: int, count: int) -> None:
    rng = np.random.default_rng(count + precision)
    rounds = 400
    sketches = [simulated(count, precision, rng) for _ in range(rounds)]
    groups = np.repeat(np.arange(rounds), [len(words) for words in sketches])
    found = hll.estimates(np.concatenate(sketches), groups, rounds, precision) / count - 1.0
    stated = 1.04 / 2 ** (precision / 2)
    assert np.sqrt(np.mean(found**2)) < 1.15 * stated
    assert abs(found.mean()) < 4 * stated / np.sqrt(rounds) + 0.02 * stated


def test_real_hashes_of_real_values_are_counted_within_three_errors() -> None:
    hashes = np.frombuffer(random.Random(1).randbytes(8 * 30_000), np.uint64)
    for count in (5, 500, 30_000):
        words = sketch(hashes[:count], 12)
        [found] = hll.estimates(words, np.zeros(len(words), np.int64), 1, 12)
        assert found == pytest.approx(count, rel=3 * 0.01625)


def test_no_value_is_zero_and_full_registers_are_the_most_there_is() -> None:
    none = np.zeros(0, np.int64)
    assert hll.estimates(none, none, 2, 12).tolist() == [0.0, 0.0]
    assert hll.estimates(none, none, 0, 12).tolist() == []
    full = np.arange(2**7, dtype=np.int64) << 6 | 58
    assert hll.estimates(full, np.zeros(2**7, np.int64), 1, 7).tolist() == [2.0**62]


def test_many_sketches_are_estimated_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = np.frombuffer(random.Random(2).randbytes(8 * 1_000), np.uint64)
    parts = [sketch(hashes[: 90 * place], 7) for place in range(10)]
    alone = [hll.estimates(w, np.zeros(len(w), np.int64), 1, 7)[0] for w in parts]
    groups = np.repeat(np.arange(10), [len(words) for words in parts])
    for at_once in (3, 5, 100):
        monkeypatch.setattr(hll, "_AT_ONCE", at_once)
        found = hll.estimates(np.concatenate(parts), groups, 10, 7)
        assert found.tolist() == pytest.approx(alone, rel=1e-14)
