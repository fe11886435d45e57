"""One cluster of three brokers for all of these tests; each test leaves it whole."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_brokers import ThrowAwayBrokers


@pytest.fixture(scope="session")
def cluster(own_home: None) -> Iterator[ThrowAwayBrokers]:
    """Three real brokers that are controllers too."""
    from millstream.testing import brokers

    began = time.monotonic()
    with brokers(3) as running:
        print(f"\nthree brokers ready in {time.monotonic() - began:.1f} s, formatting included")
        yield running


@pytest.fixture
def three(cluster: ThrowAwayBrokers) -> Iterator[ThrowAwayBrokers]:
    """The cluster, whole before and after."""
    yield cluster
    cluster.repair()
