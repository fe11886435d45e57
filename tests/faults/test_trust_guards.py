"""Everything read is verified: files by their checksums, the log by its identity.

Each scenario runs twice, as in `test_guards.py`: with the guard, and with the guard switched off
by the test, where the verifier finds damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.faults.record_files import RecordFile, lose
from tests.faults.small_world import TOPIC, Small, install_fault_points

from millstream.engine import open_sources, outputs
from millstream.engine.checkpoint import staging
from millstream.engine.checkpoint.records import framing
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


def change_record(record: RecordFile, old: bytes, new: bytes) -> None:
    whole = record.path.read_bytes()
    assert old in whole[record.at : record.end]
    record.replace(lambda mine: mine.replace(old, new))


class Trusted(str):
    """A checksum that always matches."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def test_without_the_checksum_of_a_record_a_changed_offset_is_used(
    small: Small, monkeypatch: Patch
) -> None:
    with small.run():
        pass
    record = RecordFile.of(small.folder, 1, "commit")
    change_record(record, b'"next":{"0":12,"1":12}', b'"next":{"0":10,"1":10}')
    with pytest.raises(Damaged):
        small.finish()

    digest = framing.digest_of
    monkeypatch.setattr(framing, "digest_of", lambda body: Trusted(digest(body)))
    small.finish()
    assert not small.green()


def test_without_the_checksum_of_staged_rows_wrong_results_are_sent(
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
    """A sum in a file of results."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        total: int = max(reader.read_all()["total"].to_pylist())
    return total


def test_without_the_checksum_of_state_wrong_results_are_sent(
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


def test_unread_rows_deleted_from_the_log_stop_the_job(small: Small) -> None:
    small.environment.log.first = 15

    with pytest.raises(DataGone, match="3 records are gone"):
        small.finish()


def test_a_recreated_topic_stops_the_job(small: Small) -> None:
    small.environment.log.identity = "second"

    with pytest.raises(DataGone, match="id first"):
        small.finish()


def test_without_the_identity_of_a_topic_rows_of_two_topics_are_mixed(
    small: Small, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(open_sources, "check_extent", lambda *_: None)
    small.environment.log.identity = "second"
    small.environment.log.records[TOPIC] = {}
    small.feed(30, more=100)

    small.finish()

    assert not small.green()


def test_a_topic_recreated_before_the_first_commit_stops_the_job(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    small = Small(tmp_path / "checkpoint", spark)
    install_fault_points(small.environment, monkeypatch)
    small.feed()
    small.crash_at("after intent")
    small.step()
    small.environment.log.identity = "second"

    with pytest.raises(DataGone, match="id first"):
        small.finish()
    assert not small.environment.sinks.rows


def test_a_prepared_batch_does_not_need_its_input(small: Small) -> None:
    small.crash_at("after prepared")
    small.step()
    small.environment.log.first = 24

    small.finish()

    assert small.green(), small.verdict()


# -- an older copy ----------------------------------------------------------------


def test_without_the_ledger_check_an_older_copy_writes_rows_again(
    small: Small, monkeypatch: Patch
) -> None:
    small.step()
    lose(small.folder, 2)
    monkeypatch.setattr(outputs.Outputs, "_refuse_unknown", lambda self, name: None)

    small.finish()

    assert small.verdict()["doubled"]
