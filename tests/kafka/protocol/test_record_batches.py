"""The vectorised parser of record batches, compared with batches written by hand."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kafka.batch_writing import CODECS, Whole, Written

from millstream.kafka.protocol import batch_headers, decompression, record_batches, record_starts
from millstream.kafka.protocol.batch_headers import Aborted, BadBatch, UnknownFormat
from millstream.kafka.protocol.record_batches import Records, pieces

# Some of these bytes look like the beginning of a record.
PAYLOADS = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b"", b"\0", b"\0" * 30, b"\x02\0" * 20, b'{"a":1}', b"x" * 70, b"y" * 9000]),
)
HEADERS = st.lists(
    st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=9)), max_size=2
).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[Whole]:
    found, base = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 6))):
        delta, written = 0, []
        for _ in range(draw(st.integers(0, 12))):
            delta += draw(st.integers(0, 3))
            written.append(Written(delta, draw(PAYLOADS), draw(PAYLOADS),
                                   draw(st.integers(-5, 10**9)), draw(HEADERS)))  # fmt: skip
            delta += 1
        found.append(
            Whole(base, tuple(written), draw(st.sampled_from(list(CODECS))),
                  draw(st.integers(0, 2**41)), draw(st.none() | st.integers(0, 2**41)),
                  extra_delta=draw(st.integers(0, 2)))
        )  # fmt: skip
        base += delta + 3
    return found


def records(
    fetched: memoryview, aborted: Aborted, first: int, end: int, *, keys: bool = False
) -> Records:
    """All pieces, concatenated."""
    whole = batch_headers.batches(fetched)
    found = list(pieces(fetched, whole, aborted, first, end, keys=keys))
    none: list[pa.Array] = [pa.array([], pa.binary())]
    return Records(
        np.concatenate([np.zeros(0, np.int64), *(piece.offsets for piece in found)]),
        np.concatenate([np.zeros(0, np.int64), *(piece.timestamps for piece in found)]),
        pa.concat_arrays(none + [piece.values for piece in found]),
        pa.concat_arrays(none + [piece.keys for piece in found]) if keys else None,
        max([first, *(batch.last + 1 for batch in whole)]),
    )


def rows(found: Records) -> list[tuple[int, int, bytes | None, bytes | None]]:
    assert found.keys is not None
    return list(zip(found.offsets.tolist(), found.timestamps.tolist(), found.keys.to_pylist(),
                    found.values.to_pylist(), strict=True))  # fmt: skip


def expected_rows(batches: list[Whole], first: int, end: int) -> list[tuple[int, int, bytes | None,
                                                                    bytes | None]]:  # fmt: skip
    return [
        (batch.base + record.delta,
         batch.first_stamp + record.stamp if batch.appended_at is None else batch.appended_at,
         record.key, record.value)
        for batch in batches for record in batch.records
        if first <= batch.base + record.delta < end
    ]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(logs(), st.integers(0, 60), st.integers(0, 60), st.integers(0, 70), st.booleans())
def test_written_records_are_read_between_any_two_offsets(
    log: list[Whole], skip: int, length: int, cut: int, few: bool
) -> None:
    """Both vectorised and in the loop for few records."""
    whole = b"".join(batch.bytes() for batch in log)
    first = (log[0].base if log else 0) + skip
    cut_off = whole + (log[-1].bytes()[:cut] if log else b"")[:-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batches, "_FEW", 100 if few else -1)
        found = records(memoryview(cut_off), [], first, first + length, keys=True)

    assert rows(found) == expected_rows(log, first, first + length)
    ends = [b.base + max([0, *(r.delta for r in b.records)]) + b.extra_delta + 1 for b in log]
    assert found.next == max([first, *ends])


@settings(max_examples=300, deadline=None)
@given(logs(), st.integers(1, 5))
def test_the_length_of_stretches_does_not_change_the_result(log: list[Whole], stretch: int) -> None:
    whole = memoryview(b"".join(batch.bytes() for batch in log))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batches, "_FEW", -1)
        patch.setattr(record_starts, "_FEW", 1)
        patch.setattr(record_starts, "_STRETCH", stretch)
        found = records(whole, [], 0, 2**60, keys=True)

    assert rows(found) == expected_rows(log, 0, 2**60)


@pytest.mark.parametrize("codec", CODECS)
def test_text_with_keys_headers_and_varying_sizes_needs_no_loop(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    sizes = chance.randrange
    log = [
        Whole(base, tuple(
            Written(n, b'{"n":%d,"text":"%s"}' % (n, b"x" * (9000 if n == 350 else sizes(700))),
                    chance.choice([None, b"", b"key-%d" % n]), chance.choice([0, 5, 10**6]),
                    chance.choice([(), ((b"h", b"text"), (b"none", None))]))
            for n in range(700)
        ), codec)
        for base in (0, 700, 1400)
    ]  # fmt: skip

    def never(*given: object) -> None:
        raise AssertionError("walked one by one")

    monkeypatch.setattr(record_starts, "_walked", never)
    found = records(memoryview(b"".join(batch.bytes() for batch in log)), [], 0, 2**60, keys=True)

    assert rows(found) == expected_rows(log, 0, 2**60)


def test_only_batches_of_misleading_bytes_are_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    misleading = Written(0, Whole(0, tuple(Written(n, b"inner") for n in range(40))).bytes()[61:])
    log = [
        Whole(base, tuple(replace(record, delta=n) for n in range(900)))
        for base, record in ((0, Written(0, b"plain")), (900, misleading), (1800, misleading),
                             (2700, Written(0, b"plain")))
    ]  # fmt: skip
    walked: list[int] = []
    walk = record_starts._walked

    def counted(data: np.ndarray, roots: np.ndarray, *bounds: np.ndarray) -> np.ndarray:
        walked.append(len(roots))
        return walk(data, roots, *bounds)

    monkeypatch.setattr(record_starts, "_walked", counted)
    found = records(memoryview(b"".join(batch.bytes() for batch in log)), [], 0, 2**60, keys=True)

    assert rows(found) == expected_rows(log, 0, 2**60)
    assert walked == [2]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("claimed", [-1, 0, 1, 29, 31, 2**31 - 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_whose_header_has_a_wrong_record_count_is_refused(
    codec: str, claimed: int, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batches, "_FEW", 100 if few else -1)
    whole = Whole(5, tuple(Written(n, b"x") for n in range(30)), codec, claimed=claimed)

    with pytest.raises(BadBatch) as refused:
        records(memoryview(whole.bytes()), [], 0, 2**60)

    assert refused.value.first == 5


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_count_that_is_too_large_allocates_no_memory(codec: str) -> None:
    claimed = 20_000_000
    whole = Whole(5, tuple(Written(n, b"x") for n in range(600)), codec, claimed=claimed,
                  extra_delta=claimed)  # fmt: skip
    fetched = memoryview(whole.bytes())

    tracemalloc.start()
    try:
        with pytest.raises(BadBatch, match=f"{claimed} "):
            records(fetched, [], 0, 2**60)
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_a_fetch_that_decompresses_to_more_than_the_buffer_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decompression._THREAD_BUFFER, "data", np.empty(1000, np.uint8))
    log = [Whole(10 * n, tuple(Written(k, b"%d" % k * 300) for k in range(10)), codec)
           for n, codec in enumerate(CODECS)]  # fmt: skip

    found = records(memoryview(b"".join(batch.bytes() for batch in log)), [], 0, 2**60, keys=True)

    assert rows(found) == expected_rows(log, 0, 2**60)


@pytest.mark.parametrize("codec", CODECS)
def test_records_do_not_change_when_the_next_fetch_reuses_the_buffer(codec: str) -> None:
    one, other = (Whole(0, tuple(Written(n, text * 9, text) for n in range(600)), codec)
                  for text in (b"one", b"other"))  # fmt: skip
    fetched = bytearray(one.bytes())

    found = records(memoryview(fetched), [], 0, 600, keys=True)
    fetched[:] = bytes(len(fetched))
    records(memoryview(other.bytes()), [], 0, 600, keys=True)

    assert rows(found) == expected_rows([one], 0, 600)


def test_aborted_transactions_and_markers_are_not_read() -> None:
    log = [
        Whole(0, (Written(0, b"kept"),), producer=7),
        Whole(1, (Written(0, b"gone"), Written(1, b"gone")), producer=8),
        Whole(3, (Written(0, b"plain"),)),
        Whole(4, (), producer=8, control=0),
        Whole(5, (Written(0, b"again"),), producer=8),
        Whole(6, (), producer=7, control=1),
        Whole(7, (), producer=8, control=1),
    ]
    whole = memoryview(b"".join(batch.bytes() for batch in log))

    found = records(whole, [(8, 1)], 0, 100)

    assert found.values.to_pylist() == [b"kept", b"plain", b"again"]
    assert found.offsets.tolist() == [0, 3, 5]
    assert found.next == 8


def test_the_marker_of_another_producer_does_not_end_an_aborted_transaction() -> None:
    log = [
        Whole(0, (Written(0, b"gone"),), producer=8),
        Whole(1, (), producer=9, control=0),
        Whole(2, (Written(0, b"gone"),), producer=8),
        Whole(3, (), producer=8, control=0),
    ]
    whole = memoryview(b"".join(batch.bytes() for batch in log))

    assert len(records(whole, [(8, 0), (9, 1)], 0, 100).offsets) == 0


def test_batches_of_an_old_format_raise_unknown_format() -> None:
    whole = bytearray(Whole(0, (Written(0, b"x"),)).bytes())
    whole[16] = 1

    with pytest.raises(UnknownFormat, match="1"):
        records(memoryview(bytes(whole)), [], 0, 10)


def test_python_calls_do_not_grow_with_the_number_of_records() -> None:
    import sys

    def calls(count: int) -> int:
        log = Whole(0, tuple(Written(n, b'{"auction":%d}' % n) for n in range(count)))
        whole, counted = memoryview(log.bytes()), 0

        def count_one(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count_one)
        try:
            found = records(whole, [], 0, count)
        finally:
            sys.setprofile(None)
        assert len(found.offsets) == count
        return counted

    assert calls(50_000) < 2 * calls(5_000)
