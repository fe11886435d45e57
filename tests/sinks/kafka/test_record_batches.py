"""Few messages are encoded one by one, many all at once: the batches are the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.sinks.kafka import record_batches as topic_batches
from millstream.sinks.kafka.messages import Outgoing
from millstream.sinks.kafka.record_batches import batches

PAYLOADS = st.none() | st.binary(max_size=90)
MESSAGES = st.lists(
    st.tuples(st.integers(0, 3), PAYLOADS, PAYLOADS, st.integers(-1, 2**41)),
    min_size=1,
    max_size=topic_batches._FEW,
)


@settings(max_examples=300, deadline=None)
@given(MESSAGES, st.booleans(), st.booleans(), st.lists(st.tuples(st.text(max_size=3), PAYLOADS)))
def test_few_messages_are_encoded_like_many(
    messages: list[tuple[int, bytes | None, bytes | None, int]],
    keyed: bool,
    stamped: bool,
    common: list[tuple[str, bytes | None]],
) -> None:
    partitions, keys, values, stamps = zip(*messages, strict=True)
    some = Outgoing(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()) if keyed else None,
        np.array(stamps, np.int64) if stamped else None,
        common,
    )
    to = np.array(partitions, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.sinks.kafka.record_batches.time.time", lambda: 1_763_000_000.5)
        few = list(batches(some, to))
        patch.setattr(topic_batches, "_FEW", 0)
        many = list(batches(some, to))

    assert few == many
    assert sum(batch.count for batch in few) == len(messages)


@pytest.mark.parametrize("where", ["values", "keys", "headers"])
def test_few_large_messages_are_divided_like_many(where: str) -> None:
    large, small = [b"x" * 400_000] * 6, [b"small"] * 6
    some = Outgoing(
        pa.array(large if where == "values" else small, pa.binary()),
        pa.array(large if where == "keys" else small, pa.binary()),
        own=[[("h", value)] for value in large] if where == "headers" else None,
    )

    found = list(batches(some, np.zeros(6, np.int64)))

    assert [batch.count for batch in found] == [2, 2, 2]


def test_small_batches_are_not_compressed() -> None:
    few, many = (
        next(
            batches(Outgoing(pa.array([b"the same text " * 5] * count)), np.zeros(count, np.int64))
        )
        for count in (3, 300)
    )

    assert (few.codec, many.codec) == (0, 3)
    assert len(few.packed) > 3 * 70
    assert len(many.packed) < 300 * 70 / 5
