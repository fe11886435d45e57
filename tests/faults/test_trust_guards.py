"""What is read is not believed: files by their checksums, the log by its identity.

Each story is told twice, as in `test_guards.py`: with the guard, and with the guard
switched off here in the test, where the verifier finds harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.faults.small_world import TOPIC, Small, tell_the_world

from millstream.engine import engine, outputs
from millstream.engine.checkpoint import durable, staging
from millstream.errors import Damaged, DataGone
from millstream.state.runs import runs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Patch = pytest.MonkeyPatch

# -- checksums --------------------------------------------------------------------


def change(path: Path, old: bytes, new: bytes) -> None:
    whole = path.read_bytes()
    assert old in whole
    path.write_bytes(whole.replace(old, new))


class Trusted(str):
    """A checksum that is always the one that was wanted."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def test_without_the_checksum_of_a_record_a_changed_offset_is_believed(
    small: Small, monkeypatch: Patch
) -> None:
    path = small.folder / "batches" / "0000000001.commit"
    change(path, b'"next":{"0":12,"1":12}', b'"next":{"0":10,"1":10}')
    with pytest.raises(Damaged):
        small.finish()

    digest = durable._digest
    monkeypatch.setattr(durable, "_digest", lambda text: Trusted(digest(text)))
    small.finish()
    assert not small.green()


def test_without_the_checksum_of_staged_rows_a_wrong_answer_leaves(
    small: Small, monkeypatch: Patch
) -> None:
    small.crash_at("after prepared")
    small.step()
    (path,) = small.folder.glob("staged/000000000002-*-results-*.arrow")
    total = small_total(path)
    change(path, total.to_bytes(8, "little"), (total + 1).to_bytes(8, "little"))
    with pytest.raises(Damaged, match=path.name):
        small.finish()

    monkeypatch.setattr(staging, "_checksum", lambda path: Trusted())
    small.finish()
    assert small.verdict()["wrong"]


def small_total(path: Path) -> int:
    """A sum that occurs in a file of results."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        total: int = max(reader.read_all()["total"].to_pylist())
    return total


def test_without_the_checksum_of_state_a_wrong_answer_leaves(
    small: Small, monkeypatch: Patch
) -> None:
    (path,) = small.folder.glob("state/*/*/000000000001-*.arrow")
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        batch = reader.get_batch(0)
        name = [name for name in batch.schema.names if name.startswith("_amount:")][-1]
        total = max(batch.column(name).to_pylist())
    change(path, total.to_bytes(8, "little"), (total + 1).to_bytes(8, "little"))
    with pytest.raises(Damaged, match=path.name):
        small.finish()

    mapped = runs._mapped
    monkeypatch.setattr(
        runs, "_mapped", lambda path, segment, *, verify: mapped(path, segment, verify=False)
    )
    small.finish()
    assert small.verdict()["wrong"]


# -- the log ----------------------------------------------------------------------


def test_rows_that_left_the_log_unread_stop_the_job(small: Small) -> None:
    small.environment.log.first = 15

    with pytest.raises(DataGone, match="3 records are gone"):
        small.finish()


def test_a_topic_made_anew_stops_the_job(small: Small) -> None:
    small.environment.log.identity = "second"

    with pytest.raises(DataGone, match="id first"):
        small.finish()


def test_without_looking_at_the_topic_its_rows_are_mixed_with_anothers(
    small: Small, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(engine, "check_extent", lambda *told: None)
    small.environment.log.identity = "second"
    small.environment.log.records[TOPIC] = {}
    small.feed(30, more=100)

    small.finish()

    assert not small.green()


def test_a_topic_made_anew_before_the_first_commit_stops_the_job(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    small = Small(tmp_path / "checkpoint", spark)
    tell_the_world(small.environment, monkeypatch)
    small.feed()
    small.crash_at("after intent")
    small.step()
    small.environment.log.identity = "second"

    with pytest.raises(DataGone, match="id first"):
        small.finish()
    assert not small.environment.sinks.rows


def test_a_prepared_batch_needs_its_input_no_more(small: Small) -> None:
    small.crash_at("after prepared")
    small.step()
    small.environment.log.first = 24

    small.finish()

    assert small.green(), small.verdict()


# -- an older copy ----------------------------------------------------------------


def test_without_looking_for_its_mark_an_older_copy_writes_rows_again(
    small: Small, monkeypatch: Patch
) -> None:
    small.step()
    for path in small.folder.glob("batches/0000000002.*"):
        path.unlink()
    monkeypatch.setattr(outputs.Outputs, "_refuse_unknown", lambda self, name: None)

    small.finish()

    assert small.verdict()["doubled"]
