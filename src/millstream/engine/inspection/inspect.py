"""Reads a checkpoint without running anything: its commits, its steps, one key's state.

Nothing is created, locked or changed, so a job may run at the same time: results hold for the
batch that they name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.duration import text as duration
from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.stored_specs import spec_from_json
from millstream.errors import Damaged, InvalidInput, InvalidSpec, NotFound
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.metrics.facts import lane_name, moment_of, place_of
from millstream.operators.aggregates.functions import from_json
from millstream.operators.distinct.spec import Distinct
from millstream.operators.kernel import ROWS
from millstream.operators.ordered.spec import Ordered
from millstream.operators.process.spec import Process, Visit
from millstream.operators.top.spec import Top
from millstream.operators.windows.trigger import Each, Trigger
from millstream.plan.graph import Policy
from millstream.plan.names import folder_name
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from millstream.engine.checkpoint.protocol import Head, StepState
    from millstream.engine.kernels.kernels import Typed
    from millstream.operators.kernel import Kernel
    from millstream.state.runs.manifest import Manifest
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec

Row = dict[str, Any]
_TRIES = 5


class ReadOnlyCheckpoint(Checkpoint):
    """A checkpoint opened for reading only."""

    def state_folder(self, step: str, table: str | None = None) -> Path:
        """The folder of a step's spec or state runs; it may not exist."""
        folder = self.folder / "state" / folder_name(step)
        return folder if table is None else folder / table

    @property
    def pipeline(self) -> str:
        """The name of the pipeline it belongs to."""
        return str(self._identity["pipeline"])


def open_checkpoint(folder: Path) -> ReadOnlyCheckpoint:
    """The checkpoint in a folder.

    Raises:
        NotFound: there is none.
    """
    if not (folder / "job").exists():
        raise NotFound(
            f"this needs a checkpoint in {folder}",
            got="none" if folder.exists() else "no such folder",
            do="run the pipeline first, or name its folder with --checkpoint",
        )
    return ReadOnlyCheckpoint(folder)


def commits(
    checkpoint: Checkpoint, last: int | None = None, before: int | None = None
) -> list[Row]:
    """The facts of each batch, oldest first: the `last` ones, or all that are still kept, if given
    only those of batches before `before`."""
    numbers = [n for n in checkpoint.batches("commit") if before is None or n < before]
    rows = []
    for number in numbers if last is None else numbers[-last:] if last else []:
        try:
            body = checkpoint.read_commit(number)
        except Damaged as error:
            if _swept(error):
                continue
            raise
        facts = body["facts"]
        rows.append({**facts, "batch": body["batch"], "at": moment_of(body["clock"]),
                     "finished": body["finished"], "lane": lane_name(facts["lane"]),
                     "where": place_of(facts)})  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True)
class States:
    """The state of the steps after one batch."""

    batch: int
    at: Any
    steps: list[Row]


def states(checkpoint: Checkpoint) -> States:
    """The size of each step's state; `rows` is the sum over its state runs."""
    head = _head(checkpoint)
    rows = [
        {
            "step": name,
            "kind": spec_on_disk(checkpoint, name)["kind"],
            "rows": sum(run.rows for run in state.runs),
            "bytes": sum(run.bytes for run in state.runs),
            "runs": len(state.runs),
            "floor": moment_of(_floor(state)),
            "watermark": moment_of(state.watermark),
        }
        for name, state in head.steps.items()
    ]
    return States(head.batch, moment_of(head.clock), rows)


def of_key(checkpoint: Checkpoint, step: str, key: Mapping[str, str]) -> States:
    """A step's state of one key: per open window its aggregates so far.

    Raises:
        NotFound: the checkpoint has no such step.
        InvalidInput: the key has other columns, or a value is not of its column's type.
    """
    head = _head(checkpoint)
    if step not in head.steps:
        raise NotFound(f"the checkpoint {checkpoint.folder} needs a step {step!r}",
                       got=f"{', '.join(head.steps) or 'no steps'}")  # fmt: skip
    spec = spec_on_disk(checkpoint, step)
    kernel = kernel_from(spec)
    wanted = _key_arrays(spec, key)
    rows = [row for table in _of_key(checkpoint, step, head.steps[step], kernel, wanted)
            for row in table.to_pylist()]  # fmt: skip
    return States(head.batch, moment_of(head.clock), rows)


def _head(checkpoint: Checkpoint) -> Head:
    for _ in range(_TRIES):
        try:
            return checkpoint.head()
        except Damaged as error:
            if not _swept(error):
                raise
    return checkpoint.head()


def _swept(error: Damaged) -> bool:
    """Whether a record was deleted because the running job has written newer ones."""
    return isinstance(error.__cause__, FileNotFoundError)


def spec_on_disk(checkpoint: Checkpoint, step: str) -> Row:
    """The spec of the step that wrote the state."""
    spec: Row = durable.read(checkpoint.state_folder(step) / "spec", "spec")["spec"]
    return spec


def kernel_from(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that wrote a state, from the stored spec."""
    import pyarrow as pa

    from millstream.engine.kernels.tables import TABLE_KINDS, stored_table_kernel
    from millstream.engine.kernels.windows import window_kernel
    from millstream.operators.distinct.kernel import DistinctKernel
    from millstream.operators.ordered.kernel import OrderedKernel
    from millstream.operators.process.kernel import ProcessKernel
    from millstream.operators.top.kernel import TopKernel
    from millstream.state.row_columns import ORIGIN_FIELDS

    if "join" in spec:
        from millstream.engine.kernels.joins import join_kernel_from

        return join_kernel_from(spec)
    columns = Schema.parse(spec["input"]).arrow()
    if spec["kind"] == "distinct":
        return DistinctKernel(Distinct(tuple(spec["keys"]), spec["within"]), columns)
    if spec["kind"] == "ordered":
        return OrderedKernel(Ordered(), pa.schema([*columns, *ORIGIN_FIELDS]))
    if spec["kind"] == "top":
        ranked = Top(spec["n"], spec["by"])
        return TopKernel(ranked, pa.schema([*columns, *ORIGIN_FIELDS]))
    if spec["kind"] == "process":
        process = Process(tuple(spec["keys"]), _nothing, Schema.parse(spec["state"]),
                          Schema.parse(spec["input"]))  # fmt: skip
        return ProcessKernel(process, columns)
    timed = [pa.field("_time", pa.int64())] if spec.get("timed") else []
    if spec["kind"] in TABLE_KINDS:
        return stored_table_kernel(spec, pa.schema([*columns, *timed]))
    aggregates = {name: from_json(body) for name, body in spec["aggregates"]}
    return window_kernel(
        spec_from_json(spec["window"]), spec["keys"], aggregates, pa.schema([*columns, *timed]),
        policy=_policy(spec["panes"]), retractable=spec["corrected"],
    )  # fmt: skip


def _nothing(_visit: Visit) -> None:
    """Replaces the user's function, which reading state does not call."""


def _policy(panes: Mapping[str, Any] | None) -> Policy | None:
    """A policy with which the kernel has the state columns that were stored."""
    if panes is None:
        return None
    early = Each() if panes.get("early") else None
    trigger = None if panes["kind"] is None else Trigger(early, panes=panes["kind"])
    return Policy(trigger, 1 if panes["kept"] else 0)


def _floor(state: StepState) -> int:
    """The time below which a step has dropped all state, by its first table."""
    return next((manifest.floor for manifest in state.manifests.values()), MIN_TIME)


def _key_arrays(spec: Mapping[str, Any], key: Mapping[str, str]) -> list[pa.Array]:
    import pyarrow as pa

    columns, names = Schema.parse(spec["input"]).arrow(), spec["keys"]
    if not names:
        raise InvalidInput("reading state by key needs a step with keys", got=f"a step of kind "
                           f"{spec['kind']}, which has none", do="leave out --key")  # fmt: skip
    if set(names) != set(key):
        raise InvalidInput(f"the key needs {', '.join(names)}", got=", ".join(key) or "nothing",
                           do=" ".join(f"--key {name}=…" for name in names))  # fmt: skip
    arrays = []
    for field in (columns.field(name) for name in names):
        null = key[field.name] == "null" and not pa.types.is_string(field.type)
        try:
            text = pa.array([None if null else key[field.name]], pa.string())
            arrays.append(text.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InvalidInput(f"--key {field.name} needs a value of type {field.type}",
                               got=repr(key[field.name])) from None  # fmt: skip
    return arrays


def _of_key(
    checkpoint: Checkpoint, step: str, state: StepState, kernel: Kernel, wanted: list[pa.Array]
) -> Iterator[pa.Table]:
    """The rows of one key, from its bucket; events that wait for a table may be in any bucket."""
    import numpy as np
    import pyarrow as pa

    from millstream.engine.kernels.joins import kept_rows
    from millstream.operators.joins.stream_table.as_of_kernel import WAITING
    from millstream.state.arrays.numpy_columns import plain
    from millstream.state.keys.equality import same_rows
    from millstream.state.keys.hashing import buckets_of, hash_keys
    from millstream.state.runs.view import View

    spec = spec_on_disk(checkpoint, step)
    bucket = int(buckets_of(hash_keys(wanted, 1), checkpoint.buckets)[0])
    views = {}
    for name, table_spec in kernel.tables.items():
        folder, manifest = checkpoint.state_folder(step, name), state.manifest(name)
        any_bucket = "join" in spec and name == WAITING
        views[name] = View(folder, _as_stored(table_spec, folder, manifest), manifest.runs,
                           floor=manifest.floor, of=checkpoint.buckets,
                           buckets=(0, checkpoint.buckets) if any_bucket
                           else (bucket, bucket + 1))  # fmt: skip
    joined = "join" in spec
    for table in kept_rows(spec, views) if joined else _as_answers(spec["kind"], kernel, views):
        have = [plain(table[name]) for name in spec["keys"]]
        want = [one.take(pa.array(np.zeros(len(table), np.int64))) for one in wanted]
        mine = np.flatnonzero(same_rows(have, want, len(table)))
        yield table.take(pa.array(mine)).select(
            [name for name in table.column_names if not name.startswith("_")]
        )


def stored_columns(folder: Path, manifest: Manifest) -> list[str] | None:
    """The columns of a table's files; None if it has no files."""
    from millstream.state.runs.runs import open_segment

    for run in manifest.runs:
        return list(open_segment(folder, run.segments[0]).schema.names)
    return None


def _as_stored(spec: StateSpec, folder: Path, manifest: Manifest) -> StateSpec:
    """The spec with its values in the order of the files: the stored spec sorts them by name."""
    names = stored_columns(folder, manifest)
    if names is None:
        return spec
    return replace(spec, values=tuple(sorted(spec.values, key=lambda v: names.index(v.name))))


def _as_answers(kind: str, kernel: Kernel, views: Mapping[str, View]) -> Iterator[pa.Table]:
    """State as users know it: the results if everything closed now, or the rows per key."""
    from millstream.engine.kernels.tables import TABLE_KINDS
    from millstream.operators.tables.aggregate_kernel import TableAggregateKernel

    if isinstance(kernel, TableAggregateKernel):
        yield from map(kernel.answers, views[ROWS].scan(MIN_TIME, None))
        return
    if kind not in ("distinct", "process", *TABLE_KINDS):
        for table in kernel.run([[]], views, BatchTime(MIN_TIME, END_OF_TIME, 0)).results:
            yield _without_retracted(table)
        return
    import pyarrow as pa

    for table in views[ROWS].scan(MIN_TIME, None):
        if "_alive" in table.column_names:
            table = table.filter(table["_alive"])  # noqa: PLW2901
        if "_passed" in table.column_names:
            passed = table["_passed"].cast(pa.timestamp("us", "UTC"))
            table = table.append_column("passed", passed)  # noqa: PLW2901
        yield table


def _without_retracted(table: pa.Table) -> pa.Table:
    if "_sign" not in table.column_names:
        return table
    import pyarrow.compute as pc

    return table.filter(pc.greater(table["_sign"], 0))


def verdicts(folder: Path, pipeline: str, typed: Typed) -> list[Row]:
    """Per step of the pipeline and of its checkpoint: kept, new, dropped or refused, and why."""
    from millstream.engine.inspection.compare import compared, spec_of

    if not (folder / "job").exists():
        return [{"step": name, "verdict": "new", "why": "there is no checkpoint yet"}
                for name in typed.stages.steps]  # fmt: skip
    checkpoint = ReadOnlyCheckpoint(folder)
    if checkpoint.pipeline != pipeline:
        raise InvalidSpec(
            f"the checkpoint {folder} needs the pipeline {checkpoint.pipeline!r}",
            got=repr(pipeline),
            do="name another folder with --checkpoint",
        )
    rows = []
    for name, verdict in compared(checkpoint, typed).items():
        why = _WHY.get(verdict, "")
        if verdict == "refused":
            why = changed(spec_on_disk(checkpoint, name), spec_of(typed.stages.steps[name], typed))
        rows.append({"step": name, "verdict": verdict, "why": why})
    return rows


_WHY = {
    "kept": "continues with its state",
    "new": "starts without state",
    "dropped": "no longer in the pipeline; its state is kept and not used",
}


def changed(known: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How two specs differ, as text: `window 10 seconds → 20 seconds`."""
    words = [
        f"{word} {_shown(word, known.get(word))} → {_shown(word, now.get(word))}"
        for word in dict.fromkeys([*known, *now])
        if known.get(word) != now.get(word)
    ]
    return "; ".join(words)


def _shown(word: str, value: Any) -> str:
    if value is None:
        return "none"
    if word in ("window", "join"):
        return str(spec_from_json(value))
    if word == "within":
        return duration(value)
    if word == "aggregates":
        return ", ".join(f"{name}={_aggregate(body)}" for name, body in value)
    if word == "panes":
        more = [word for word in ("early", "kept") if value.get(word)]
        return ", ".join([value["kind"] or "on time", *more])
    return ", ".join(value) if isinstance(value, list) else str(value).replace("`", "")


def _aggregate(body: Mapping[str, Any]) -> str:
    try:
        return str(from_json(body))
    except InvalidSpec:
        return str(body["kind"])
