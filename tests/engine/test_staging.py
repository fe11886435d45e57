"""Staged files: errors while writing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millstream.engine.checkpoint.staging import stage
from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.table({"a": [1, 2]})


def test_an_error_of_the_source_is_not_reported_as_one_of_the_disk(tmp_path: Path) -> None:
    """Unavailable is an OSError, too, and was reported as a full disk."""

    def rows() -> Iterator[pa.Table]:
        yield ROWS
        raise Unavailable("reading needs Kafka", got="no answer")

    with pytest.raises(Unavailable, match="reading needs Kafka; got no answer"):
        stage(tmp_path, "rows.arrow", rows())
    assert not list(tmp_path.iterdir())
