"""Writes a Delta table: a batch is one commit that contains the batch number.

Delta stores the highest committed number per application and rejects concurrent commits of the
same application, so that two runs of a job never write the same batch twice. The folder
`_millstream` beside the table records which run owns it; Delta readers ignore it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

from millstream.errors import Damaged, DataGone, InvalidSpec
from millstream.sinks.keys import Keyed
from millstream.sinks.ownership import START_OVER
from millstream.sinks.record_log import Records
from millstream.sinks.retries import CONTINUES, Diagnosis, retry
from millstream.sinks.rows import Changes, appended, changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.sinks.spec import Opening, Staged

_SIGN = "millstream_sign"
_INTENT, _JOB = "millstream.intent", "millstream.job"
_RECENT = 50
_HARMLESS = {"OPTIMIZE", "VACUUM START", "VACUUM END", "FSCK", "SET TBLPROPERTIES"}


class DeltaWriter:
    """One table; each batch is one commit."""

    def __init__(self, path: Path, opening: Opening) -> None:
        self._path, self._opening = path, opening
        self._records = Records(path, opening)
        self._where = f"the Delta table {path}"
        self._app = f"millstream.{opening.job}"

    @property
    def _guarded(self) -> bool:
        return self._opening.delivery != "at_least_once"

    def recover(self, expected: str | None) -> str | None:
        """Claim the table, and return the intent of this job's last commit."""
        self._retry(self._claim, "open")
        if not self._guarded:
            return expected
        table = self._table()
        version = None if table is None else table.transaction_version(self._app)
        if version is None and expected is not None:
            raise DataGone(
                f"the job needs its batches in {self._where}",
                got="a table without any" if table is not None else "no table",
                do=f"restore it as the last batch left it, or {START_OVER}",
            )
        if table is None or version is None:
            return None
        return self._last(table) or expected

    def _claim(self) -> None:
        """Record this run as the owner and remove earlier records."""
        self._records.claim(full={})
        self._records.remove_before(self._records.number)

    def _table(self) -> DeltaTable | None:
        return DeltaTable(self._path) if DeltaTable.is_deltatable(str(self._path)) else None

    def _last(self, table: DeltaTable) -> str | None:
        """The intent of this job's last commit; None if the log no longer contains it."""
        for limit in (_RECENT, None):
            for commit in table.history(limit):
                if commit.get(_JOB) == self._opening.job:
                    return str(commit[_INTENT])
        return None

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write a batch as one commit; retry while the disk rejects it."""
        self._retry(lambda: self._attempt(intent, batch, outputs), f"take batch {batch}")
        self._opening.on_step("after a sink's commit")

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        self._records.check()
        table = self._table()
        if self._guarded and table is not None and self._is_committed(table, intent, batch):
            return
        properties = self._properties(intent, batch)
        keyed = [staged for staged in outputs if _keys(staged)]
        self._opening.on_step("before a sink's commit")
        if keyed:
            self._merge(table, outputs, properties)
        elif outputs:
            self._append(table, _stream(outputs), properties)
        elif table is not None:
            self._append(table, _no_rows(table), properties)

    # -- rewind -------------------------------------------------------------------

    def existing(self) -> list[str]:
        """The table, if it exists."""
        return [self._where] if self._table() is not None else []

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """The log must reach back to the batch, and no one else may have written since."""
        table = self._table()
        if table is None:
            return None
        if not self._guarded:
            return f"{self._where} does not record batches with at_least_once"
        later: list[dict[str, Any]] = []
        for commit in table.history():
            mine = commit.get(_JOB) == self._opening.job
            if mine and commit[_INTENT] == intent:
                break
            later.append(commit)
        else:
            cut_off = later[-1]["version"] > 0 and later[-1].get(_JOB) == self._opening.job
            if intent is not None or cut_off:
                return f"the log of {self._where} does not reach back to batch {batch}"
            while later and later[-1].get(_JOB) != self._opening.job:
                later.pop()
        others = {str(c["operation"]) for c in later if _JOB not in c} - _HARMLESS
        return (f"other writers have changed {self._where} since ({', '.join(sorted(others))})"
                if others else None)  # fmt: skip

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Restore the version that the batch left, in one commit."""
        self._retry(lambda: self._restore(intent, mark), "rewind")
        table = self._table()
        return None if table is None else self._last(table)

    def _restore(self, intent: str | None, mark: str) -> None:
        self._records.check()
        table = self._table()
        if table is None or self._last(table) in (intent, mark):
            return
        mine = [c for c in table.history() if c.get(_JOB) == self._opening.job]
        properties = CommitProperties(
            custom_metadata={_INTENT: mark, _JOB: self._opening.job}, max_commit_retries=0
        )
        version = next((c["version"] for c in mine if c[_INTENT] == intent), None)
        if version is None:
            version = mine[-1]["version"] - 1
        if version < 0:
            table.delete(commit_properties=properties)
        else:
            table.restore(version, commit_properties=properties)

    def _is_committed(self, table: DeltaTable, intent: str, batch: int) -> bool:
        version = table.transaction_version(self._app)
        if version is None or version < batch:
            return False
        last = self._last(table)
        if version > batch or last not in (None, intent):
            raise Damaged(
                f"the checkpoint needs the records of every batch in {self._where}",
                got=f"batch {version} with the intent {last}, which it does not contain",
                do="restore the newest backup of the checkpoint; this one would write rows again",
            )
        return True

    def _properties(self, intent: str, batch: int) -> CommitProperties:
        return CommitProperties(
            custom_metadata={_INTENT: intent, _JOB: self._opening.job},
            app_transactions=[Transaction(self._app, batch)] if self._guarded else None,
            max_commit_retries=0 if self._guarded else None,
        )

    def _append(self, table: DeltaTable | None, rows: Any, properties: CommitProperties) -> None:
        """Append rows. If `table` is None, the table must not exist yet."""
        if rows is None:
            return
        mode: Literal["append", "error"] = "append" if table is not None else "error"
        write_deltalake(table or self._path, rows, mode=mode, commit_properties=properties)

    def _merge(
        self, table: DeltaTable | None, outputs: Sequence[Staged], properties: CommitProperties
    ) -> None:
        """Apply the last change of each key of a batch, in one commit."""
        (keys,) = {_keys(staged) for staged in outputs}
        change = _all_changes(outputs, keys)
        if table is None:
            self._append(None, change.upserts, properties)
            return
        source = _signed(change)
        names = change.upserts.column_names
        same = " AND ".join(_same(name, source[name].null_count) for name in keys)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        (
            table.merge(source, same, source_alias="s", target_alias="t",
                        commit_properties=properties)
            .when_matched_delete(predicate=f"s.{_SIGN} < 0")
            .when_matched_update(values, predicate=f"s.{_SIGN} > 0")
            .when_not_matched_insert(values, predicate=f"s.{_SIGN} > 0")
            .execute()
        )  # fmt: skip

    def _retry(self, attempt: Callable[[], None], what: str) -> None:
        retry(attempt, what, where=self._where, opening=self._opening,
                errors=(OSError, DeltaError), classify_error=self._classify_error)  # fmt: skip

    def _classify_error(self, error: Exception) -> Diagnosis:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, CommitFailedError | OSError) or "already exists" in said:
            return said, None
        if isinstance(error, SchemaMismatchError):
            need = f"{self._where} needs rows with columns that match its own"
        else:
            need = f"{self._where} needs to accept the rows"
        return said, InvalidSpec(need, got=said, do=f"fix the table or the columns; {CONTINUES}")

    def close(self) -> None:
        """Nothing to close."""


def _keys(staged: Staged) -> tuple[str, ...]:
    assert isinstance(staged.sink, Keyed)
    return staged.sink.keys


def _stream(outputs: Sequence[Staged]) -> pa.RecordBatchReader | None:
    """The rows of a batch, streamed from disk; None if there are none."""
    tables = (table for staged in outputs for table in appended(staged) if table.num_rows)
    first = next(tables, None)
    if first is None:
        return None
    return pa.RecordBatchReader.from_batches(first.schema, _batches(first, tables))


def _batches(first: pa.Table, rest: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    yield from first.to_batches()
    for table in rest:
        yield from table.to_batches()


def _no_rows(table: DeltaTable) -> pa.Table:
    return pa.schema(table.schema().to_arrow()).empty_table()


def _all_changes(outputs: Sequence[Staged], keys: tuple[str, ...]) -> Changes:
    """The changes of a batch as one table, because a merge is one commit."""
    tables = [table for staged in outputs for table in staged.tables()]
    table = pa.concat_tables(tables)
    staged = replace(outputs[0], tables=lambda: iter([table]))
    (found,) = changes(staged, keys, size=max(1, table.num_rows))
    return found


def _signed(change: Changes) -> pa.Table:
    upserts, deletes = change.upserts, change.deletes
    signs = [pa.array([sign] * table.num_rows, pa.int8())
             for sign, table in ((1, upserts), (-1, deletes))]  # fmt: skip
    return pa.concat_tables(
        [upserts.append_column(_SIGN, signs[0]), deletes.append_column(_SIGN, signs[1])],
        promote_options="default",
    )


def _same(name: str, nulls: int) -> str:
    """The condition that two keys are equal; nulls compare as equal."""
    target, source = f"t.{_quoted(name)}", f"s.{_quoted(name)}"
    return f"({target} IS NOT DISTINCT FROM {source})" if nulls else f"({target} = {source})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
