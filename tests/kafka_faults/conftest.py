"""One cluster of three brokers for all tests in this folder; it is repaired after each test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_brokers import ThrowAwayBrokers


@pytest.fixture(scope="session")
def cluster(own_home: None) -> Iterator[ThrowAwayBrokers]:
    """Three real brokers, which are also controllers."""
    from millstream.testing import brokers

    began = time.monotonic()
    with brokers(3) as running:
        print(f"\nthree brokers ready in {time.monotonic() - began:.1f} s, formatting included")
        yield running


@pytest.fixture
def three(cluster: ThrowAwayBrokers) -> Iterator[ThrowAwayBrokers]:
    """The cluster, repaired afterwards."""
    yield cluster
    cluster.repair()
