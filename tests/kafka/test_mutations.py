"""Mutated batches give exactly their records or `BadBatch`, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pytest
from tests.oracles import batches_oracle


def thrown(seed: int, count: int, *how: str) -> str:
    """The output for so many mutations, in a process with little memory."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.kafka.mutations", str(seed), str(count), *how],
        capture_output=True, text=True, check=False,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )  # fmt: skip
    print(ended.stdout[-3000:], ended.stderr[-3000:])
    assert ended.returncode == 0, f"seed {seed}"
    return ended.stdout


def test_the_checksum_of_the_oracle_is_crc32c() -> None:
    assert batches_oracle.crc32c(b"123456789") == 0xE3069283
    assert google_crc32c.value(b"123456789") == 0xE3069283


def test_thousands_of_mutations_of_every_codec_match_the_oracle() -> None:
    said = thrown(1, 4_000)

    assert "0 wrong" in said
    assert "'damaged': 0" not in said
    assert "'rows': 0" not in said


def test_mutations_that_a_broker_sends_are_refused_or_read_by_the_client_of_pipelines() -> None:
    said = thrown(2, 1_500, "broker")

    assert "0 wrong" in said
    assert "'damaged': 0" not in said
    assert "'rows': 0" not in said


@pytest.mark.soak
@pytest.mark.parametrize("how", [(), ("broker",)], ids=["direct", "broker"])
def test_a_million_mutations_of_every_codec_match_the_oracle(
    how: tuple[str, ...],
) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seeds {seed} to {seed + 9}")
    with ThreadPoolExecutor(2) as pool:
        for said in pool.map(lambda more: thrown(seed + more, 100_000, *how), range(10)):
            assert "0 wrong" in said
