"""Staged files: what a file that cannot be written is blamed on."""

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


def test_an_error_of_the_source_of_the_rows_stays_what_it_is(tmp_path: Path) -> None:
    """Unavailable is an OSError, too, and was reported as a disk that takes nothing."""

    def rows() -> Iterator[pa.Table]:
        yield ROWS
        raise Unavailable("reading needs Kafka", got="no answer")

    with pytest.raises(Unavailable, match="reading needs Kafka; got no answer"):
        stage(tmp_path, "rows.arrow", rows())
    assert not list(tmp_path.iterdir())
